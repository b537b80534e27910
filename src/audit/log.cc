#include "audit/log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/text.h"
#include "base/try.h"
#include "codec/json.h"
#include "sys/file_sys.h"

namespace temenos::audit {
namespace {

constexpr char kName[] = "audit.jsonl";
constexpr char kBefore[] = "audit.jsonl.1";
// Room for time, event, "cut" and "lost".
constexpr std::size_t kFrame = 256;
constexpr std::chrono::seconds kPatience{1};

std::string now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  tm utc{};
  gmtime_r(&t.tv_sec, &utc);
  char day[32];
  strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
  char text[48];
  snprintf(text, sizeof text, "%s.%03ldZ", day, t.tv_nsec / 1'000'000);
  return text;
}

std::string quoted(std::string_view text, bool& cut) {
  cut = cut || text.size() > kMaxText;
  return serialize_json(boost::json::value(escape(text.substr(0, kMaxText))));
}

// With a limit: who holds it may be stopped, and an end of a box must not wait for that.
Result<void> lock(int file) {
  constexpr std::chrono::milliseconds kStep{2};
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno(errno, "flock");
    if (std::chrono::steady_clock::now() >= limit) return fail(Code::kTimedOut, "the audit log");
    std::this_thread::sleep_for(kStep);
  }
  return {};
}

}  // namespace

Event::Event(std::string_view name) { add("event", quoted(name, cut_)); }

void Event::add(std::string_view field, const std::string& json) {
  if (fields_.size() + field.size() + json.size() + 4 + kFrame > kMaxLine) {
    cut_ = true;
    return;
  }
  fields_ += ",\"" + std::string(field) + "\":" + json;
}

Event& Event::text(std::string_view field, std::string_view value) {
  add(field, quoted(value, cut_));
  return *this;
}

Event& Event::texts(std::string_view field, const std::vector<std::string>& values) {
  std::string list = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string next = (i == 0 ? "" : ",") + quoted(values[i], cut_);
    if (i == kMaxItems || fields_.size() + list.size() + next.size() + 2 * kFrame > kMaxLine) {
      cut_ = true;
      break;
    }
    list += next;
  }
  add(field, list + "]");
  return *this;
}

Event& Event::number(std::string_view field, std::int64_t value) {
  add(field, std::to_string(value));
  return *this;
}

Event& Event::flag(std::string_view field, bool value) {
  add(field, value ? "true" : "false");
  return *this;
}

void Log::write(const Event& event) {
  if (directory_ < 0) return;
  std::string line = "{\"time\":\"" + now() + "\"" + event.fields_;
  if (event.cut_) line += ",\"cut\":true";
  if (lost_ != 0) line += ",\"lost\":" + std::to_string(lost_);
  line += "}\n";
  lost_ = append(line) ? 0 : lost_ + 1;
}

// The lock is the file's own: who finds another file under the name, once it has it, begins again.
Result<void> Log::append(const std::string& line) const {
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    const UniqueFd file =
        TRY(sys::open_beneath(directory_, kName, O_WRONLY | O_APPEND | O_CREAT, 0600));
    TRY(lock(file.get()));
    struct stat here{};
    struct stat there{};
    if (fstat(file.get(), &here) != 0) return fail_errno(errno, "fstat");
    if (fstatat(directory_, kName, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
        here.st_ino != there.st_ino || here.st_dev != there.st_dev) {
      continue;
    }
    const auto size = static_cast<std::size_t>(here.st_size);
    if (size + line.size() > kMaxFile) {
      if (renameat(directory_, kName, directory_, kBefore) != 0) {
        return fail_errno(errno, "rotating the audit log");
      }
      continue;
    }
    auto written = sys::write_all(file.get(), line);
    // Half a line would spoil the next one, too.
    if (!written) (void)!ftruncate(file.get(), here.st_size);
    return written;
  }
  return fail(Code::kIo, "the audit log changes too fast");
}

}  // namespace temenos::audit
