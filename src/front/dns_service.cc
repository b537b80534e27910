#include "front/dns_service.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace temenos::front {
namespace {

constexpr int kDatagramsATurn = 64;
// What a stream does before others get their turn: takes, answers and sends a dozen questions.
constexpr int kStepsATurn = 64;
constexpr std::size_t kMaxQuestion = 4'096;

wire::Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Where a datagram was sent to before it was handed to the name server.
void read_asked_address(msghdr& message, sockaddr_storage& out) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level == SOL_IP && part->cmsg_type == IP_ORIGDSTADDR &&
        part->cmsg_len >= CMSG_LEN(sizeof(sockaddr_in))) {
      std::memcpy(&out, CMSG_DATA(part), sizeof(sockaddr_in));
    } else if (part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_ORIGDSTADDR &&
               part->cmsg_len >= CMSG_LEN(sizeof(sockaddr_in6))) {
      std::memcpy(&out, CMSG_DATA(part), sizeof(sockaddr_in6));
    }
  }
}

template <typename Info>
void put_control(msghdr& message, char* room, int level, int type, const Info& info) {
  message.msg_control = room;
  message.msg_controllen = CMSG_SPACE(sizeof info);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = level;
  part->cmsg_type = type;
  part->cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(CMSG_DATA(part), &info, sizeof info);
}

}  // namespace

void DnsService::on_datagrams(std::size_t which, Millis now) {
  for (int i = 0; i < kDatagramsATurn && read_datagram(which, now); ++i) {
  }
}

// False: there is none.
bool DnsService::read_datagram(std::size_t which, Millis now) {
  Pending where;
  where.peer.which = which;
  char room[kMaxQuestion];
  iovec part{room, sizeof room};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_name = &where.peer.from;
  message.msg_namelen = sizeof where.peer.from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = recvmsg(udp_[which].get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return errno == EINTR || errno == ECONNREFUSED;
  if ((message.msg_flags & MSG_TRUNC) != 0) return true;
  where.peer.from_size = message.msg_namelen;
  read_asked_address(message, where.peer.asked);
  const auto question = wire::parse_dns_question(bytes_of({room, static_cast<std::size_t>(count)}));
  if (question) serve(*question, std::move(where), now);
  return true;
}

void DnsService::serve(const wire::DnsQuestion& question, Pending where, Millis now) {
  where.question = question;
  egress::Request request;
  auto answer = names_.answer(question, request, now);
  if (!answer) {
    const auto slot = std::find_if(pending_.begin(), pending_.end(),
                                   [](const Pending& entry) { return entry.id == 0; });
    if (slot != pending_.end()) {
      const auto low = kFirstId + static_cast<std::uint64_t>(slot - pending_.begin());
      where.id = ++serial_ << 16 | low;
      where.until = now + kPendingTime;
      request.id = where.id;
      if (dialer_.ask(request)) {
        *slot = std::move(where);
        ++waiting_;
        return;
      }
    }
    answer = wire::DnsAnswer{.rcode = wire::DnsRcode::kServFail};
  }
  deliver(where, *answer);
}

void DnsService::deliver(const Pending& where, const wire::DnsAnswer& answer) {
  if (!where.is_stream) {
    send_datagram(where.peer,
                  wire::build_dns_answer(where.question, answer, where.question.udp_size));
    return;
  }
  Stream& stream = streams_[where.stream];
  if (!stream.side.fd || stream.serial != where.serial) return;
  const auto message = wire::build_dns_answer(where.question, answer, wire::kMaxDnsMessage);
  stream.out += static_cast<char>(message.size() >> 8);
  stream.out += static_cast<char>(message.size());
  stream.out.append(message.begin(), message.end());
  stream.waits = false;
}

void DnsService::send_datagram(const Peer& peer, const std::vector<std::uint8_t>& message) {
  iovec part{const_cast<std::uint8_t*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
  msghdr header{};
  header.msg_name = const_cast<sockaddr_storage*>(&peer.from);
  header.msg_namelen = peer.from_size;
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (peer.asked.ss_family == AF_INET) {
    in_pktinfo info{};
    info.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(peer.asked).sin_addr;
    put_control(header, control, SOL_IP, IP_PKTINFO, info);
  } else if (peer.asked.ss_family == AF_INET6) {
    in6_pktinfo info{};
    info.ipi6_addr = reinterpret_cast<const sockaddr_in6&>(peer.asked).sin6_addr;
    put_control(header, control, SOL_IPV6, IPV6_PKTINFO, info);
  }
  // A client asks again when an answer is lost, as with any name server.
  (void)sendmsg(udp_[peer.which].get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void DnsService::on_reply(const egress::Reply& reply, Millis now) {
  const std::size_t index = (reply.id & 0xFFFF) - kFirstId;
  if (index >= pending_.size() || pending_[index].id != reply.id) return;
  const Pending where = std::exchange(pending_[index], {});
  --waiting_;
  deliver(where, names_.learn(where.question, reply, now));
  if (where.is_stream) run_stream(where.stream, now);
}

void DnsService::on_dialer_lost(Millis now) {
  names_.forget();
  for (Pending& entry : pending_) {
    if (entry.id != 0) entry.until = now;
  }
  on_time(now);
}

void DnsService::on_time(Millis now) {
  for (Pending& entry : pending_) {
    if (waiting_ == 0) break;
    if (entry.id == 0 || now < entry.until) continue;
    const Pending where = std::exchange(entry, {});
    --waiting_;
    deliver(where, {.rcode = wire::DnsRcode::kServFail});
    if (where.is_stream) run_stream(where.stream, now);
  }
  more_ = false;
  for (std::uint32_t index = 0; index < kMaxStreams; ++index) {
    const Stream& stream = streams_[index];
    if (stream.side.fd && now >= stream.active + kStreamTime) close_stream(index);
    if (stream.more) run_stream(index, now);
  }
}

DnsService::Millis DnsService::deadline() const {
  if (more_) return 0;
  Millis out = std::numeric_limits<Millis>::max();
  if (waiting_ > 0) {
    for (const Pending& entry : pending_) {
      if (entry.id != 0) out = std::min(out, entry.until);
    }
  }
  if (open_streams_ == 0) return out;
  for (const Stream& stream : streams_) {
    if (stream.side.fd) out = std::min(out, stream.active + kStreamTime);
  }
  return out;
}

// ---- streams

void DnsService::on_accepted(UniqueFd socket, Millis now) {
  const auto free = std::find_if(streams_.begin(), streams_.end(),
                                 [](const Stream& stream) { return !stream.side.fd; });
  if (free == streams_.end()) return;
  const int fd = socket.get();
  *free = {};
  free->side.fd = std::move(socket);
  free->serial = ++serial_;
  free->active = now;
  ++open_streams_;
  const auto index = static_cast<std::uint32_t>(free - streams_.begin());
  if (!watch_(fd, index)) return close_stream(index);
  run_stream(index, now);
}

void DnsService::on_stream(std::uint32_t index, std::uint32_t events, Millis now) {
  if (index >= kMaxStreams || !streams_[index].side.fd) return;
  streams_[index].side.note(events);
  run_stream(index, now);
}

void DnsService::close_stream(std::uint32_t index) {
  streams_[index].side.close();
  streams_[index] = {};
  --open_streams_;
}

// One question at a time: its answer has gone out before the next is looked at.
void DnsService::run_stream(std::uint32_t index, Millis now) {
  Stream& stream = streams_[index];
  stream.more = false;
  for (int step = 0; stream.side.fd; ++step) {
    if (step == kStepsATurn) {
      stream.more = more_ = true;
      return;
    }
    if (!stream.out.empty()) {
      if (!stream.side.writable) return;
      const std::ptrdiff_t count = stream.side.send(stream.out);
      if (count == Side::kBroken) return close_stream(index);
      if (count > 0) stream.out.erase(0, static_cast<std::size_t>(count));
      continue;
    }
    if (stream.waits) return;
    if (next_question(index, now)) continue;
    if (!stream.side.fd || !stream.side.readable) return;
    char room[kMaxQuestion];
    const std::ptrdiff_t count = stream.side.receive(room);
    if (count == Side::kNone) return;
    if (count <= 0) return close_stream(index);
    stream.in.append(room, static_cast<std::size_t>(count));
  }
}

// False: not all of one has come.
bool DnsService::next_question(std::uint32_t index, Millis now) {
  Stream& stream = streams_[index];
  if (stream.in.size() < 2) return false;
  const std::size_t size = static_cast<std::size_t>(static_cast<std::uint8_t>(stream.in[0])) << 8 |
                           static_cast<std::uint8_t>(stream.in[1]);
  if (size > kMaxQuestion) {
    close_stream(index);
    return false;
  }
  if (stream.in.size() < 2 + size) return false;
  const auto question = wire::parse_dns_question(bytes_of(stream.in).subspan(2, size));
  stream.in.erase(0, 2 + size);
  stream.active = now;
  if (!question) {
    close_stream(index);
    return false;
  }
  Pending where;
  where.is_stream = true;
  where.stream = index;
  where.serial = stream.serial;
  stream.waits = true;
  serve(*question, std::move(where), now);
  return true;
}

}  // namespace temenos::front
