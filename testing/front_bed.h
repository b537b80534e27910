// front as a process of its own, with keeper, dialer and the router's listeners played by the test.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "egress/dial_protocol.h"
#include "front/front.h"
#include "sys/process_sys.h"

namespace temenos::testing {

// What dialer says to a destination, as "name:port" or "address:port".
struct DialRule {
  egress::Verdict verdict = egress::Verdict::kRefused;  // the first answer
  std::string name;
  std::uint16_t server = 0;  // a port of loopback; 0: there is none, and it fails
  egress::Why why = egress::Why::kNotAllowed;
  bool is_address = false;
  bool mute = false;  // no answer at all
  int late_ms = 0;    // the answer takes so long; others wait behind it
};

// A dialer that does as it is told, in a thread.
class FakeDialer {
 public:
  explicit FakeDialer(UniqueFd socket);
  ~FakeDialer() { stop(); }

  void rule(const std::string& destination, DialRule rule);
  void name(const std::string& name, std::uint32_t number, bool allowed);  // for kResolve
  // Waits until so many have come; those that have, if the time is over.
  std::vector<egress::Request> asks(std::size_t count = 0);
  std::vector<egress::Request> reports(std::size_t count = 0);
  // The connection that was asked for by `id` may be no longer.
  void end(std::uint64_t id);
  // Dies: its end of the socket is closed.
  void stop();

 private:
  void run();
  void answer(const egress::Request& request);
  std::vector<egress::Request> wait_for(const std::vector<egress::Request>& from,
                                        std::size_t count);

  UniqueFd socket_;
  UniqueFd stop_reader_;
  UniqueFd stop_writer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, DialRule> rules_;
  std::map<std::string, std::pair<std::uint32_t, bool>> names_;
  std::vector<egress::Request> asks_;
  std::vector<egress::Request> reports_;
  std::thread thread_;
};

class FrontBed {
 public:
  struct Options {
    front::Times times;
    std::size_t max_connections = front::kMaxConnections;
    std::size_t max_memory = front::Config().max_memory;
    // The program to run, jailed, in place of a fork that serves; then `at` says where the
    // listeners are, since it knows the router's own addresses only.
    std::string program;
    std::string at = "127.0.0.1";
    std::uint16_t port = 0;
    bool six = false;  // the program's listener is an IPv6 one
  };
  FrontBed() : FrontBed(Options()) {}
  explicit FrontBed(const Options& options);
  ~FrontBed();
  FrontBed(const FrontBed&) = delete;
  FrontBed& operator=(const FrontBed&) = delete;

  // A client's connection through the router, and one to the explicit proxy.
  UniqueFd connect() const;
  UniqueFd connect_proxy() const;
  // What a connection through the router is asked for.
  std::string transparent() const;

  FakeDialer& dialer() { return *dialer_; }
  // Another dialer in the place of the last, which lives on until it is dropped.
  std::unique_ptr<FakeDialer> replace_dialer();
  int control() const { return control_.get(); }
  pid_t pid() const { return front_.pid(); }
  std::size_t open_fds() const;
  // Whether front has again no more descriptors than at its start.
  bool back_to_its_start() const;
  // keeper goes; the exit status of front.
  int end();

  std::uint16_t tcp_port = 0;
  std::uint16_t proxy_port = 0;
  std::uint16_t udp_port = 0;
  std::uint16_t dns_tcp_port = 0;

 private:
  UniqueFd send_dialer();
  // `fds` are the control socket and the listeners.
  void start(const Options& options, const std::vector<int>& fds);

  UniqueFd control_;
  sys::Process front_;
  std::string at_;
  std::unique_ptr<FakeDialer> dialer_;
  std::size_t fds_at_start_ = 0;
};

}  // namespace temenos::testing
