#include "wire/host_name.h"

#include <algorithm>
#include <charconv>

#include "codec/address.h"

namespace temenos::wire {
namespace {

#ifdef TEMENOS_PLANT_HOST_RULE
constexpr std::size_t kMaxLabel = 64;
#else
constexpr std::size_t kMaxLabel = 63;
#endif

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_'; }

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  if (text.empty() || !is_digit(text[0]) || text[0] == '0') return std::nullopt;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

std::optional<Host> address_host(std::string_view text) {
  const auto address = parse_address(text);
  if (!address) return std::nullopt;
  return Host{.text = format_block(*address), .address = address};
}

}  // namespace

NameDefect name_defect(std::string_view name) {
  if (name.empty()) return NameDefect::kEmpty;
  if (name.size() > kMaxHostName) return NameDefect::kTooLong;
  for (std::string_view rest = name;;) {
    const std::size_t dot = rest.find('.');
    const std::string_view label = rest.substr(0, dot);
    if (label.empty() || label.size() > kMaxLabel) return NameDefect::kLabelSize;
    if (!std::all_of(label.begin(), label.end(), is_name_byte) || label.front() == '-' ||
        label.back() == '-') {
      return NameDefect::kCharacters;
    }
    if (dot == rest.npos) break;
    rest.remove_prefix(dot + 1);
  }
  return ends_in_number(name) ? NameDefect::kNumber : NameDefect::kNone;
}

std::optional<std::string> canonical_name(std::string_view text) {
  std::string name = lower_ascii(text.substr(0, kMaxHostName + 1));
  if (name_defect(name) != NameDefect::kNone) return std::nullopt;
  return name;
}

bool ends_in_number(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last.starts_with("0x")) {
    return last.find_first_not_of("0123456789abcdef", 2) == last.npos;
  }
  return !last.empty() && std::all_of(last.begin(), last.end(), is_digit);
}

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::optional<Host> parse_host(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > kMaxHostName) return std::nullopt;
  if (bytes.find(':') != bytes.npos) return address_host(bytes);
  std::string name = lower_ascii(bytes);
  if (ends_in_number(name)) return address_host(name);
  if (name_defect(name) != NameDefect::kNone) return std::nullopt;
  return Host{.text = std::move(name)};
}

std::optional<Authority> parse_authority(std::string_view bytes) {
  const bool bracketed = bytes.starts_with('[');
  const std::size_t end = bracketed ? bytes.find(']') : bytes.find(':');
  if (bracketed && end == bytes.npos) return std::nullopt;
  const std::string_view inner = bracketed ? bytes.substr(1, end - 1) : bytes.substr(0, end);
  const std::string_view after = end == bytes.npos ? "" : bytes.substr(end + (bracketed ? 1 : 0));
  if (bracketed && inner.find(':') == inner.npos) return std::nullopt;
  auto host = parse_host(inner);
  if (!host) return std::nullopt;
  Authority out{.host = *std::move(host)};
  if (after.empty()) return out;
  if (after[0] != ':') return std::nullopt;
  out.port = parse_port(after.substr(1));
  if (!out.port) return std::nullopt;
  return out;
}

std::string format_authority(const Host& host, std::optional<std::uint16_t> port) {
  std::string out = host.address && !host.address->v4 ? "[" + host.text + "]" : host.text;
  if (port) out += ":" + std::to_string(*port);
  return out;
}

}  // namespace temenos::wire
