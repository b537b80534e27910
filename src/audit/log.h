// What was done to a box and by it, as lines of JSON in its data dir: audit.jsonl, and before it
// audit.jsonl.1. Written by the library in the processes that use the box, never by anything that
// reads the box's bytes. The log has no environment, no file contents and no output; it has the
// words of commands, so who puts a secret there puts it into the log.
//
// Each line is one object: "time" (RFC 3339, UTC, milliseconds), "event", and the event's own
// fields. A text that is no plain UTF-8 without control bytes has them as \xNN (base/text.h).
// A line is at most kMaxLine bytes: lists and texts that do not fit are cut and "cut" is true. Two
// files of kMaxFile bytes are kept. An event that could not be written (a full disk) is counted,
// and the next line that can be has "lost".
//
// Thread-safety: one thread an object; any number of processes write the same log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "temenos/error.h"

namespace temenos::audit {

inline constexpr std::size_t kMaxLine = 4096;
inline constexpr std::size_t kMaxFile = 4u << 20;
inline constexpr std::size_t kMaxText = 1024;  // of one text, before it is escaped
inline constexpr std::size_t kMaxItems = 64;   // of a list

// One event while its fields are collected.
class Event {
 public:
  explicit Event(std::string_view name);
  Event& text(std::string_view field, std::string_view value);
  Event& texts(std::string_view field, const std::vector<std::string>& values);
  Event& number(std::string_view field, std::int64_t value);
  Event& flag(std::string_view field, bool value);

 private:
  friend class Log;
  void add(std::string_view field, const std::string& json);
  std::string fields_;  // JSON, each with a comma before it
  bool cut_ = false;
};

class Log {
 public:
  Log() = default;  // writes nothing
  // In `directory`, a descriptor that stays open as long as this object.
  explicit Log(int directory) : directory_(directory) {}
  // Never fails for the caller: what cannot be written is counted.
  void write(const Event& event);
  std::uint64_t lost() const { return lost_; }

 private:
  Result<void> append(const std::string& line) const;
  int directory_ = -1;
  std::uint64_t lost_ = 0;
};

}  // namespace temenos::audit
