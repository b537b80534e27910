// Small text helpers that several modules need. No locale, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temenos {

// For printing bytes that others chose: control bytes, DEL, backslash and bytes that are not valid
// UTF-8 become \xNN (newline \n, tab \t), so that no name can move the cursor or forge a line.
std::string escape(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
std::string base64_encode(std::string_view bytes);
std::string hex_encode(std::string_view bytes);
// Lower-case hex only; nullopt for anything else.
std::optional<std::string> hex_decode(std::string_view hex);
// Splits at every `separator`; "a//b" gives an empty piece.
std::vector<std::string> split(std::string_view text, char separator);
// For secrets: takes as long for any two texts of the sizes that it is given.
bool equal_in_constant_time(std::string_view a, std::string_view b);
// `size` bytes from the kernel's generator, as lower-case hex.
std::string random_hex(std::size_t size);

}  // namespace temenos
