#include "git/config_words.h"

#include <optional>
#include <set>
#include <tuple>

namespace temenos::git {
namespace {

constexpr std::size_t kMaxKey = 256;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name(char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

struct Setting {
  std::string section;  // with the subsection: "filter.LFS"
  std::string name;
  std::string value;
};

class ConfigText {
 public:
  explicit ConfigText(std::string_view text) : text_(text) {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
  }

  std::optional<Setting> next() {
    while (!text_.empty()) {
      const char c = text_[0];
      if (c == '#' || c == ';') {
        skip_line();
      } else if (c == '[') {
        read_section();
      } else if (is_letter(c)) {
        return read_setting();
      } else {
        text_.remove_prefix(1);
      }
    }
    return std::nullopt;
  }

 private:
  char take() {
    const char c = text_[0];
    text_.remove_prefix(1);
    return c;
  }
  bool at_line_end() const { return text_.empty() || text_[0] == '\n'; }
  void skip_line() {
    while (!at_line_end()) text_.remove_prefix(1);
  }
  void skip_blanks() {
    while (!text_.empty() && is_blank(text_[0])) text_.remove_prefix(1);
  }

  void read_section() {
    text_.remove_prefix(1);
    section_.clear();
    bool quoted = false;
    while (!at_line_end()) {
      char c = take();
      if (!quoted && c == ']') return;
      if (c == '"') {
        if (!quoted) section_ += '.';
        quoted = !quoted;
        continue;
      }
      if (quoted && c == '\\' && !at_line_end()) c = take();
      if (!quoted && is_blank(c)) continue;
      section_ += quoted ? c : lower(c);
    }
  }

  Setting read_setting() {
    Setting setting{section_, "", ""};
    while (!text_.empty() && is_name(text_[0])) setting.name += lower(take());
    skip_blanks();
    if (!text_.empty() && text_[0] == '=') {
      text_.remove_prefix(1);
      setting.value = read_value();
    }
    return setting;
  }

  std::string read_value() {
    skip_blanks();
    std::string value;
    std::size_t keep = 0;  // blanks after this are the end of the line's, and dropped
    bool quoted = false;
    while (!text_.empty()) {
      char c = take();
      if (c == '\n') break;
      if (c == '"') {
        quoted = !quoted;
        keep = value.size();
        continue;
      }
      if (!quoted && (c == '#' || c == ';')) {
        skip_line();
        break;
      }
      if (c == '\\' && !text_.empty()) {
        if (text_.starts_with("\r\n")) text_.remove_prefix(1);
        c = take();
        if (c == '\n') continue;
        c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'b' ? '\b' : c;
        value += c;
        keep = value.size();
        continue;
      }
      value += c;
      if (quoted || !is_blank(c)) keep = value.size();
    }
    value.resize(keep);
    return value;
  }

  std::string_view text_;
  std::string section_;
};

std::string_view first_part(std::string_view section) {
  return section.substr(0, section.find('.'));
}

// Values that git only takes for names, addresses or text, and that are often also names of files
// which a box has to write.
bool is_data(const Setting& setting) {
  static const std::set<std::pair<std::string_view, std::string_view>> data = {
      {"blame", "ignorerevsfile"}, {"branch", "description"}, {"branch", "merge"},
      {"branch", "pushremote"},    {"branch", "remote"},      {"commit", "template"},
      {"core", "excludesfile"},    {"gui", "recentrepo"},     {"init", "defaultbranch"},
      {"mailmap", "file"},         {"maintenance", "repo"},   {"remote", "fetch"},
      {"remote", "push"},          {"remote", "pushurl"},     {"remote", "url"},
      {"safe", "directory"},       {"submodule", "active"},   {"submodule", "branch"},
      {"submodule", "path"},       {"submodule", "url"},
  };
  const auto section = first_part(setting.section);
  if (section == "user" || section == "url") return true;
  // "ext::COMMAND" runs one (git-remote-ext(1)).
  return data.contains({section, setting.name}) && setting.value.find("::") == std::string::npos;
}

// The value is one path, also without a slash, or a fact about the repository.
bool is_whole(const Setting& setting) {
  const std::string_view name = setting.name;
  return name.ends_with("path") || name.ends_with("file") || name.ends_with("dir") ||
         name == "worktree" || name == "objectformat";
}

bool ends_piece(char c) {
  using std::string_view_literals::operator""sv;
  static constexpr std::string_view kEnds = " \t\r\n\v\f\0'\"`;&|()<>{}=:,"sv;
  return kEnds.find(c) != std::string_view::npos;
}

class Collector {
 public:
  explicit Collector(ConfigWords& out) : out_(out) {}

  void add(const Setting& setting) {
    key_ = setting.section + "." + setting.name;
    if (key_.size() > kMaxKey) key_.resize(kMaxKey);
#ifndef TEMENOS_PLANT_GIT_CONFIG
    for (char& c : key_) c = c == '\0' ? '?' : c;
#endif
    std::string_view value = setting.value;
    const bool shell = value.starts_with('!');
    if (shell) value.remove_prefix(1);
    if (value.find('/') != value.npos || is_whole(setting)) emit(value);
    // Without "!" an alias is arguments of git itself.
    const bool git_arguments = first_part(setting.section) == "alias" && !shell;
    std::size_t pieces = 0;
    std::size_t at = 0;
    while (at < value.size() && out_.complete) {
      if (value[at] == '$') {
        at = after_variable(value, at);
        continue;
      }
      if (ends_piece(value[at])) {
        ++at;
        continue;
      }
      const std::size_t begin = at;
      while (at < value.size() && value[at] != '$' && !ends_piece(value[at])) ++at;
      const auto piece = value.substr(begin, at - begin);
      // A bare first word is looked for in PATH; what follows it may be an interpreter's script.
      const bool bare = piece.find('/') == piece.npos;
      const bool argument = pieces++ > 0 && !git_arguments && piece[0] != '-';
      if (!bare || argument) emit(piece);
    }
  }

 private:
  static std::size_t after_variable(std::string_view value, std::size_t at) {
    ++at;
    if (at < value.size() && value[at] == '{') ++at;
    while (at < value.size() && (is_name(value[at]) || value[at] == '_') && value[at] != '-' &&
           value[at] != '.') {
      ++at;
    }
    return at;
  }

  void emit(std::string_view word) {
    if (word.empty() || word.size() > kMaxWord || word.find('\0') != word.npos) return;
    ConfigWord found{key_, std::string(word)};
    if (!seen_.insert({found.key, found.word}).second) return;
    bytes_ += found.key.size() + found.word.size() + 2;
    if (out_.words.size() == kMaxWords || bytes_ > kMaxWordBytes) {
      out_.complete = false;
      return;
    }
    out_.words.push_back(std::move(found));
  }

  ConfigWords& out_;
  std::string key_;
  std::set<std::pair<std::string, std::string>> seen_;
  std::size_t bytes_ = 0;
};

}  // namespace

ConfigWords config_words(std::string_view text) {
  ConfigWords out;
  ConfigText reader(text.substr(0, kMaxConfigBytes));
  Collector collector(out);
  while (out.complete) {
    const auto setting = reader.next();
    if (!setting) break;
    if (!is_data(*setting)) collector.add(*setting);
  }
  out.complete &= text.size() <= kMaxConfigBytes;
  return out;
}

}  // namespace temenos::git
