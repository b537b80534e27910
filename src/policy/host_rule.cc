#include <idn2.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/text.h"
#include "base/try.h"
#include "codec/address.h"
#include "codec/field_path.h"
#include "policy/presets.h"
#include "temenos/network.h"
#include "wire/host_name.h"

namespace temenos {
namespace {

constexpr std::size_t kMaxEntry = 1024;  // bytes; a name in UTF-8 can be longer than its A-labels
constexpr std::size_t kMaxPreset = 32;
constexpr std::string_view kLoopbackHint =
    "write 127.0.0.1:PORT to open one port of the host's loopback";

tl::unexpected<Error> bad(std::string_view entry, std::string_view why, std::string hint) {
  return fail(Code::kInvalidArgument,
              in_quotes(entry) + " is no allowlist entry: " + std::string(why), std::move(hint));
}

bool has_idn(std::string_view name) {
  return name.starts_with("xn--") || name.find(".xn--") != name.npos ||
         std::any_of(name.begin(), name.end(), [](char c) { return (c & 0x80) != 0; });
}

// U-labels to A-labels, and A-labels checked (UTS 46 non-transitional, IDNA2008).
Result<std::string> to_ascii(std::string_view name, std::string_view entry) {
  char* ascii = nullptr;
  const int rc =
      idn2_to_ascii_8z(std::string(name).c_str(), &ascii, IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL);
  const std::unique_ptr<char, void (*)(void*)> owner(ascii, idn2_free);
  if (rc != IDN2_OK) {
    return bad(entry, std::string("not a valid international name (") + idn2_strerror(rc) + ")",
               "correct the name, or write its xn-- form");
  }
  return wire::lower_ascii(ascii);
}

Result<void> check_name(std::string_view name, std::string_view entry) {
  switch (wire::name_defect(name)) {
    case wire::NameDefect::kNone:
      break;
    case wire::NameDefect::kEmpty:
      return bad(entry, "the name is empty", "write host or host:port");
    case wire::NameDefect::kTooLong:
      return bad(entry, "the name is longer than 253 bytes", "shorten it");
    case wire::NameDefect::kLabelSize:
      return bad(entry, "a part between dots is empty or longer than 63 bytes", "correct the name");
    case wire::NameDefect::kCharacters:
      return bad(entry, "a name has letters, digits, - and _ only, and no - at the ends of a part",
                 "write host, host:port, *.host, an address or @preset; not a URL or a path");
    case wire::NameDefect::kNumber:
      return bad(entry, "a name does not end in a number", "write an IPv4 address as 192.0.2.1");
  }
  if (name == "private") {
    return bad(entry, "\"private\" is the word before a rule for private addresses",
               "write private:HOST");
  }
  if (name == "localhost" || name.ends_with(".localhost") || name == "host.temenos.internal") {
    return bad(entry, "a name never opens loopback", std::string(kLoopbackHint));
  }
  return {};
}

}  // namespace

struct HostRuleParser {
  std::string_view entry;  // as written, for errors
  HostRule rule;

  explicit HostRuleParser(std::string_view text) : entry(text) {}

  Result<HostRule> run() {
    if (entry.empty() || entry.size() > kMaxEntry) {
      return bad(entry, "it is empty or longer than 1024 bytes", "write host or host:port");
    }
    const auto is_bad = [](char c) { return (c >= 0 && c <= ' ') || c == 0x7f; };
    if (!is_valid_utf8(entry) || std::any_of(entry.begin(), entry.end(), is_bad)) {
      return bad(entry, "it has blanks, control bytes or invalid UTF-8", "remove them");
    }
    const std::string text = wire::lower_ascii(entry);
    std::string_view rest = text;
    if (rest.starts_with("private:")) {
      rule.allows_private_ = true;
      rest.remove_prefix(8);
    }
    if (rest.starts_with("@")) return preset(rest.substr(1));
    if (rest.starts_with("[")) return bracketed(rest.substr(1));
    if (std::count(rest.begin(), rest.end(), ':') > 1) {
      // Without brackets the last group could be meant as a port; a block ends in /n.
      if (rest.find('/') != rest.npos) return address(rest);
      return bad(entry, "an IPv6 address without brackets",
                 "write [2001:db8::1] or [2001:db8::1]:443");
    }
    const std::size_t colon = rest.find(':');
    if (colon != rest.npos) TRY(port(rest.substr(colon + 1)));
    return host(rest.substr(0, colon));
  }

  Result<void> port(std::string_view text) {
    if (text == "*") {
      rule.ports_ = HostRule::Ports::kAny;
      return {};
    }
    unsigned value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (ec != std::errc() || end != text.data() + text.size() || text[0] == '0' || value > 65535) {
      return bad(entry, "the port is not a number from 1 to 65535 or *",
                 "write host:443 or host:*");
    }
    rule.ports_ = HostRule::Ports::kOne;
    rule.port_ = static_cast<std::uint16_t>(value);
    return {};
  }

  Result<HostRule> preset(std::string_view name) {
    if (name.empty() || name.size() > kMaxPreset || name.front() == '-' ||
        wire::name_defect(name) == wire::NameDefect::kCharacters || name.find('.') != name.npos) {
      return bad(entry, "a preset is @ and a short word, without a port", "write @npm or @pypi");
    }
    if (rule.allows_private_) {
      return bad(entry, "presets name public hosts only", "remove private:");
    }
    if (!is_preset(name)) {
      std::string known;
      for (const std::string& one : preset_names()) known += (known.empty() ? "@" : ", @") + one;
      return bad(entry, "there is no such preset", "write hosts, or one of " + known);
    }
    rule.kind_ = HostRule::Kind::kPreset;
    rule.name_ = name;
    return rule;
  }

  Result<HostRule> bracketed(std::string_view rest) {
    const std::size_t close = rest.find(']');
    const std::string_view after = close == rest.npos ? "" : rest.substr(close + 1);
    if (close == rest.npos || (!after.empty() && after.front() != ':')) {
      return bad(entry, "the brackets of an IPv6 address do not match", "write [2001:db8::1]:443");
    }
    if (!after.empty()) TRY(port(after.substr(1)));
    const std::string_view inner = rest.substr(0, close);
    if (inner.find(':') == inner.npos) {
      return bad(entry, "only IPv6 addresses stand in brackets", "remove the brackets");
    }
    return address(inner);
  }

  Result<HostRule> host(std::string_view text) {
    if (text.find('/') != text.npos) return address(text);
    const bool subdomains = text.starts_with("*.");
    if (subdomains) text.remove_prefix(2);
    std::string name(text);
    if (has_idn(name)) name = TRY(to_ascii(name, entry));
    if (name.ends_with('.')) name.pop_back();
    if (wire::ends_in_number(name)) {
      if (!subdomains && !has_idn(text)) return address(name);
      return bad(entry, "a name does not end in a number", "write an IPv4 address as 192.0.2.1");
    }
    TRY(check_name(name, entry));
    rule.kind_ = subdomains ? HostRule::Kind::kSubdomains : HostRule::Kind::kName;
    rule.name_ = std::move(name);
    return rule;
  }

  Result<HostRule> address(std::string_view text) {
    std::optional<AddressBlock> block;
    if (text.find('/') != text.npos) {
      const BlockText parsed = parse_block(text);
      if (parsed.bad_host_bits) {
        return bad(entry, "bits beyond the prefix are set", "write the first address of the block");
      }
      block = parsed.block;
    } else {
      block = parse_address(text);
    }
    if (!block) {
      return bad(entry, "not an address",
                 "write 192.0.2.1, 192.0.2.0/24, [2001:db8::1] or 2001:db8::/32, "
                 "without leading zeros or zone");
    }
    rule.kind_ = HostRule::Kind::kAddress;
    rule.block_ = *block;
    TRY(check_class());
    return rule;
  }

  Result<void> check_class() {
    switch (classify(rule.block_)) {
      case AddressClass::kLoopback:
        if (rule.is_host_loopback() && !rule.allows_private_) return {};
        return bad(entry, "loopback is opened one port at a time", std::string(kLoopbackHint));
      case AddressClass::kSpecial:
        return bad(entry,
                   "link-local, metadata, multicast and reserved addresses are never reached",
                   "remove it");
      case AddressClass::kPrivate:
        if (rule.allows_private_) return {};
        return bad(entry, "a private address", "write private:" + rule.to_string());
      case AddressClass::kPublic:
        // A block may hold private ranges as well, and then private: opens those too.
        if (!rule.allows_private_ || holds_private(rule.block_)) return {};
        return bad(entry, "not a private address", "remove private:");
    }
    return {};
  }
};

Result<HostRule> HostRule::parse(std::string_view text) { return HostRuleParser(text).run(); }

bool HostRule::is_host_loopback() const {
  static constexpr std::array<std::uint8_t, 16> kLocalhost = {127, 0, 0, 1};
  return kind_ == Kind::kAddress && ports_ == Ports::kOne && block_.v4 && block_.prefix == 32 &&
         block_.bytes == kLocalhost;
}

bool HostRule::covers(const HostRule& narrower) const {
  if (ports_ != Ports::kAny && (ports_ != narrower.ports_ || port_ != narrower.port_)) return false;
  if (narrower.allows_private_ && !allows_private_) return false;
  // Loopback is never part of a larger block's meaning.
  if (is_host_loopback() || narrower.is_host_loopback()) return *this == narrower;
  switch (kind_) {
    case Kind::kName:
    case Kind::kPreset:
      return narrower.kind_ == kind_ && narrower.name_ == name_;
    case Kind::kSubdomains:
      if (narrower.kind_ == Kind::kSubdomains && narrower.name_ == name_) return true;
      return (narrower.kind_ == Kind::kName || narrower.kind_ == Kind::kSubdomains) &&
             narrower.name_.ends_with("." + name_);
    case Kind::kAddress:
      return narrower.kind_ == kind_ && block_.contains(narrower.block_);
  }
  return false;
}

std::string HostRule::to_string() const {
  std::string out = allows_private_ ? "private:" : "";
  switch (kind_) {
    case Kind::kName:
      out += name_;
      break;
    case Kind::kSubdomains:
      out += "*." + name_;
      break;
    case Kind::kPreset:
      out += "@" + name_;
      break;
    case Kind::kAddress: {
      const std::string text = format_block(block_);
      // A block without a port is clear without brackets, and is how blocks are written.
      const bool brackets = !block_.v4 && (block_.prefix == 128 || ports_ != Ports::kWeb);
      out += brackets ? "[" + text + "]" : text;
      break;
    }
  }
  if (ports_ == Ports::kOne) out += ":" + std::to_string(port_);
  if (ports_ == Ports::kAny) out += ":*";
  return out;
}

}  // namespace temenos
