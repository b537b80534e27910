#include <vector>

#include "wire/http_head.h"
#include "wire/http_text.h"

namespace temenos::wire {
namespace {

struct Field {
  std::string name;        // lower case
  std::string_view value;  // without blanks around it
  std::string_view line;   // with its end
};

// The line at the front of `text`, without its end; takes it away.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return line;
}

std::vector<Field> fields_of(std::string_view text) {
  std::vector<Field> out;
  take_line(text);
  while (true) {
    const std::string_view whole = text;
    const std::string_view line = take_line(text);
    if (line.empty()) return out;
    const std::size_t colon = line.find(':');
    out.push_back({lower_ascii(line.substr(0, colon)), trim(line.substr(colon + 1)),
                   whole.substr(0, line.size() + 2)});
  }
}

// Of "http://host/path" the part that its origin is asked for.
std::string_view origin_target(std::string_view target, bool is_options) {
  const std::string_view path = target.substr(authority_end(target));
  // RFC 9112, section 3.2.4.
  return path.empty() ? (is_options ? "*" : "/") : path;
}

}  // namespace

std::string rewrite_for_origin(Bytes bytes, const HttpHead& head) {
  const std::string_view text = as_text(bytes.first(head.size));
  const std::vector<Field> fields = fields_of(text);
  std::vector<std::string> dropped = {"host",    "connection", "keep-alive",
                                      "upgrade", "te",         "http2-settings"};
  for (const Field& field : fields) {
    if (field.name != "connection") continue;
    for_each_element(field.value, [&](std::string_view option) {
      dropped.push_back(lower_ascii(option));
      return true;
    });
  }
  const std::string_view line = text.substr(0, text.find("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  const std::string_view path =
      origin_target(line.substr(first + 1, last - first - 1), head.method == "OPTIONS");
  std::string out = head.method + ' ';
  if (path[0] == '?') out += '/';
  out += path;
  out += line.substr(last);
  out += "\r\nHost: " + format_authority(head.host, head.port) + "\r\n";
  for (const Field& field : fields) {
    if (field.name.starts_with("proxy-")) continue;
    if (std::find(dropped.begin(), dropped.end(), field.name) == dropped.end()) out += field.line;
  }
  return out + "Connection: close\r\n\r\n";
}

std::string without_upgrade(Bytes bytes, const HttpHead& head) {
  const std::string_view text = as_text(bytes.first(head.size));
  std::string out(text.substr(0, text.find("\r\n") + 2));
  for (const Field& field : fields_of(text)) {
    if (field.name == "upgrade" || field.name == "http2-settings") continue;
    if (field.name != "connection") {
      out += field.line;
      continue;
    }
    std::string options;
    for_each_element(field.value, [&](std::string_view option) {
      if (!equal_ignoring_case(option, "upgrade") &&
          !equal_ignoring_case(option, "http2-settings")) {
        options += (options.empty() ? "" : ", ") + std::string(option);
      }
      return true;
    });
    if (!options.empty()) out += "Connection: " + options + "\r\n";
  }
  return out + "\r\n";
}

}  // namespace temenos::wire
