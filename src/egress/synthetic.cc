#include "egress/synthetic.h"

#include "codec/address.h"
#include "egress/plan.h"

namespace temenos::egress {
namespace {

// Where the number's 32 bits lie.
constexpr std::size_t kOffset4 = 0;
constexpr std::size_t kOffset6 = 12;

std::uint32_t load(const AddressBlock& address, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | address.bytes[at + i];
  return value;
}

void store(AddressBlock& address, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 4; i-- > 0; value >>= 8) {
    address.bytes[at + i] = static_cast<std::uint8_t>(value & 0xff);
  }
}

const AddressBlock& first4() {
  static const AddressBlock first = *parse_address(kFirstName4);
  return first;
}

const AddressBlock& first6() {
  static const AddressBlock first = *parse_address(kFirstName6);
  return first;
}

}  // namespace

AddressBlock synthetic4(std::uint32_t number) {
  AddressBlock out = first4();
  store(out, kOffset4, load(out, kOffset4) + number);
  return out;
}

AddressBlock synthetic6(std::uint32_t number) {
  AddressBlock out = first6();
  store(out, kOffset6, load(out, kOffset6) + number);
  return out;
}

bool is_boxes_own(const AddressBlock& address) {
  static const AddressBlock range4 = *parse_block("198.18.0.0/15").block;
  static const AddressBlock range6 = [] {
    AddressBlock out = *parse_address(kRouter6);
    out.prefix = kBoxRange6;
    for (std::size_t i = 8; i < out.bytes.size(); ++i) out.bytes[i] = 0;
    return out;
  }();
  return range4.contains(address) || range6.contains(address);
}

std::optional<std::uint32_t> number_of(const AddressBlock& address) {
  if (!is_boxes_own(address)) return std::nullopt;
  const std::size_t at = address.v4 ? kOffset4 : kOffset6;
  const std::uint32_t number = load(address, at) - load(address.v4 ? first4() : first6(), at);
  if (number >= kMaxNames && (number < kFirstRefused || number - kFirstRefused >= kMaxRefused)) {
    return std::nullopt;
  }
  // All other bits are those of the first one.
  if ((address.v4 ? synthetic4(number) : synthetic6(number)) != address) return std::nullopt;
  return number;
}

}  // namespace temenos::egress
