// What comes to a network namespace, as words (testing/internet.h). Reads in a thread of its own.
//
// Thread-safety: one user.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace temenos::testing {

class PacketRecorder {
 public:
  // A packet socket of the namespace that this thread is in; of one interface, or of all (0).
  static UniqueFd open_socket(unsigned interface);

  // What came from `internet` and, with "host " before it, from `loopback`. Questions to port 53 of
  // `resolvers` are told by name.
  PacketRecorder(UniqueFd internet, UniqueFd loopback, std::set<std::string> resolvers);
  ~PacketRecorder();
  PacketRecorder(const PacketRecorder&) = delete;
  PacketRecorder& operator=(const PacketRecorder&) = delete;

  std::set<std::string> record();
  void forget();

 private:
  void read_on();
  void drain(int fd, const char* before);
  void note(const unsigned char* packet, std::size_t size, bool v6, const char* before);
  void note_tcp(const std::string& from, const std::string& to, const unsigned char* segment,
                std::size_t size, const char* before);
  void note_udp(const std::string& to, const unsigned char* datagram, std::size_t size,
                const char* before);

  UniqueFd internet_;
  UniqueFd loopback_;
  UniqueFd end_;
  const std::set<std::string> resolvers_;
  std::mutex mutex_;
  std::set<std::string> seen_;
  std::set<std::string> flows_;  // "FROM:PORT TO:PORT" of each connection begun
  std::thread reader_;
};

}  // namespace temenos::testing
