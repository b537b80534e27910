// A web server of a test's on the host's loopback, in a thread: says the same to every request, and
// keeps what it was sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "testing/tcp.h"

namespace temenos::testing {

class WebServer {
 public:
  static constexpr char kBody[] = "hello from the host";

  WebServer() : thread_([this] { run(); }) {}
  ~WebServer() {
    over_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return listener_.port; }
  std::string at() const { return "127.0.0.1:" + std::to_string(port()); }
  // The heads that have come.
  std::string heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  void run() {
    while (!over_) {
      const UniqueFd client = listener_.accept_one(50);
      if (!client) continue;
      std::string head;
      while (head.find("\r\n\r\n") == head.npos) {
        char room[4096];
        pollfd ready{client.get(), POLLIN, 0};
        const ssize_t count =
            poll(&ready, 1, 5000) == 1 ? recv(client.get(), room, sizeof room, 0) : 0;
        if (count <= 0) break;
        head.append(room, static_cast<std::size_t>(count));
      }
      {
        const std::lock_guard lock(mutex_);
        heard_ += head;
      }
      send_text(client.get(), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " +
                                  std::to_string(sizeof kBody - 1) +
                                  "\r\nConnection: close\r\n\r\n" + kBody);
    }
  }

  LoopbackListener listener_;
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::string heard_;
  std::thread thread_;
};

}  // namespace temenos::testing
