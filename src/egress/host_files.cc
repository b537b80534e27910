// The host's resolv.conf and hosts as text (egress/resolver.h).
#include <algorithm>

#include "codec/address.h"
#include "egress/resolver.h"
#include "wire/host_name.h"

namespace temenos::egress {
namespace {

constexpr std::size_t kMaxServers = 3;  // resolv.conf(5)
constexpr std::size_t kMaxEntries = 65'536;
constexpr std::string_view kBlank = " \t\r\v\f";

// The next line without its comment; removed from `text`.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return line.substr(0, line.find_first_of("#;"));
}

// Empty: there is none.
std::string_view next_word(std::string_view& line) {
  const std::size_t begin = std::min(line.find_first_not_of(kBlank), line.size());
  line.remove_prefix(begin);
  const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

}  // namespace

std::vector<AddressBlock> name_servers(std::string_view resolv_conf) {
  std::vector<AddressBlock> out;
  for (std::string_view rest = resolv_conf.substr(0, kMaxResolvConf); !rest.empty();) {
    std::string_view line = next_line(rest);
    if (next_word(line) != "nameserver" || out.size() == kMaxServers) continue;
    // One with a zone (fe80::1%eth0) cannot be used by the library.
    if (const auto address = parse_address(next_word(line))) out.push_back(*address);
  }
  if (out.empty()) out.push_back(*parse_address("127.0.0.1"));  // as the C library does
  return out;
}

std::vector<std::pair<std::string, AddressBlock>> hosts_entries(std::string_view hosts) {
  std::vector<std::pair<std::string, AddressBlock>> out;
  for (std::string_view rest = hosts.substr(0, kMaxHosts); !rest.empty();) {
    std::string_view line = next_line(rest);
    const auto address = parse_address(next_word(line));
    if (!address) continue;
    for (auto word = next_word(line); !word.empty(); word = next_word(line)) {
      if (out.size() == kMaxEntries) return out;
      if (auto name = wire::canonical_name(word)) out.emplace_back(std::move(*name), *address);
    }
  }
  return out;
}

}  // namespace temenos::egress
