#include "init/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

namespace temenos::init {

using namespace box_wire;

namespace {

constexpr std::size_t kMaxLine = 4096;  // of a line discipline; it drops what is longer
constexpr int kDiscardReads = 64;       // more than all that a discipline keeps
constexpr std::array kSignalKeys{VINTR, VQUIT, VSUSP};

bool make_pair(UniqueFd& master, UniqueFd& slave, std::string& path) {
  master.reset(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  int unlocked = 0;
  unsigned number = 0;
  if (!master || ioctl(master.get(), TIOCSPTLCK, &unlocked) != 0 ||
      ioctl(master.get(), TIOCGPTN, &number) != 0) {
    return false;
  }
  path = "/dev/pts/" + std::to_string(number);
  slave.reset(open(path.c_str(), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  return static_cast<bool>(slave);
}

// A pty of its own is asked: does what should only have been a signal come through as a character?
bool try_discipline() {
  UniqueFd master;
  UniqueFd slave;
  std::string path;
  termios mode{};
  if (!make_pair(master, slave, path) || tcgetattr(slave.get(), &mode) != 0) return false;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  mode.c_lflag |= ISIG;
  if (tcsetattr(slave.get(), TCSANOW, &mode) != 0) return false;
  char key = static_cast<char>(mode.c_cc[VINTR]);
  return write(master.get(), &key, 1) == 1 && read(slave.get(), &key, 1) == 1;
}

bool discipline_is_simple() {
  static const bool simple = try_discipline();
  return simple;
}

bool same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag && std::memcmp(a.c_cc, b.c_cc, sizeof a.c_cc) == 0;
}

// Another mode for one write. What the program sets meanwhile stays.
class BriefMode {
 public:
  BriefMode(int fd, const termios& before, const termios& brief)
      : fd_(fd), before_(before), brief_(brief), changed_(!same(before, brief)) {
    if (changed_) tcsetattr(fd_, TCSANOW, &brief_);
  }
  ~BriefMode() {
    termios now{};
    if (changed_ && tcgetattr(fd_, &now) == 0 && same(now, brief_)) {
      tcsetattr(fd_, TCSANOW, &before_);
    }
  }
  BriefMode(const BriefMode&) = delete;
  BriefMode& operator=(const BriefMode&) = delete;

 private:
  int fd_;
  const termios& before_;
  const termios& brief_;
  bool changed_;
};

bool is_signal_key(const termios& mode, std::uint8_t key) {
  return std::any_of(kSignalKeys.begin(), kSignalKeys.end(),
                     [&](int index) { return mode.c_cc[index] == key; });
}

bool has(const termios& mode, tcflag_t flag) { return (mode.c_lflag & flag) != 0; }

// The key that erases a whole line, where the one that erases a character can do it.
bool is_kill_key(const termios& mode, std::uint8_t key) {
  return has(mode, ICANON) && key != 0 && key == mode.c_cc[VKILL] && mode.c_cc[VERASE] != 0;
}

std::size_t write_some(int fd, Bytes bytes) {
  for (;;) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) return 0;
  }
}

}  // namespace

std::unique_ptr<Terminal> Terminal::open(const Resize& size, UniqueFd& child) {
  std::unique_ptr<Terminal> made(new Terminal);
  std::string path;
  if (!make_pair(made->master_, made->slave_, path)) return nullptr;
  // A description of the program's own: it would not expect a non-blocking one.
  child.reset(::open(path.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios mode{};
  if (!child || tcgetattr(child.get(), &mode) != 0) return nullptr;
  mode.c_iflag |= IUTF8;
  if (tcsetattr(child.get(), TCSANOW, &mode) != 0) return nullptr;
  made->resize(size);
  return made;
}

void Terminal::resize(const Resize& size) {
  winsize window{};
  window.ws_row = size.rows;
  window.ws_col = size.cols;
  ioctl(master_.get(), TIOCSWINSZ, &window);
}

std::size_t Terminal::type(Bytes bytes) {
  termios mode{};
  if (tcgetattr(master_.get(), &mode) != 0) return write_some(master_.get(), bytes);
  if (discipline_is_simple()) {
    const auto special = std::find_if(bytes.begin(), bytes.end(), [&mode](std::uint8_t byte) {
      return is_signal_key(mode, byte) || is_kill_key(mode, byte);
    });
    if (special == bytes.begin() && !is_signal_key(mode, *special)) {
      return kill_line(mode) ? 1 : 0;
    }
    if (special == bytes.begin()) {
      // A value of 0 means that there is no such key.
      const bool signals = has(mode, ISIG) && *special != 0;
      const bool taken = signals ? strike(mode, *special) : type_literally(mode, *special);
      return taken ? 1 : 0;
    }
    bytes = bytes.first(static_cast<std::size_t>(special - bytes.begin()));
  }
  const std::size_t taken = write_some(master_.get(), bytes);
  note(mode, bytes.first(taken));
  return taken;
}

// Where a line begins anew; for type_end() and strike().
void Terminal::note(const termios& mode, Bytes typed) {
  for (const std::uint8_t byte : typed) {
    const bool ends = byte == '\n' || byte == '\r' || byte == mode.c_cc[VEOF] ||
                      byte == mode.c_cc[VEOL] || is_signal_key(mode, byte);
    line_ = ends ? 0 : std::min(line_ + 1, kMaxLine);
  }
}

// A key that means a signal, with what the discipline should have done: what was typed before is
// gone, the character reaches nobody, and shows as ^C. The mode is changed while the signal is on
// its way only where lines are read and echoed, where no program is about to change it.
bool Terminal::strike(const termios& mode, std::uint8_t key) {
  const bool flush = !has(mode, NOFLSH);
  if (flush) discard_input();
  if (has(mode, ICANON)) {
    termios brief = mode;
    brief.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    for (const int erase : {0x7f, 0x08, 0x15, 0x1f}) {
      brief.c_cc[VERASE] = static_cast<cc_t>(erase);
      if (!is_signal_key(mode, brief.c_cc[VERASE])) break;
    }
    std::string keys(flush ? line_ + 2 : 2, static_cast<char>(brief.c_cc[VERASE]));
    keys[0] = static_cast<char>(key);
    const BriefMode changed(master_.get(), mode, brief);
    const auto* data = reinterpret_cast<const std::uint8_t*>(keys.data());
    if (write_some(master_.get(), {data, keys.size()}) == 0) return false;
  } else {
    if (write_some(master_.get(), {&key, 1}) == 0) return false;
    if (flush) discard_input();
  }
  line_ = 0;
  if (has(mode, ECHO)) {
    const bool caret = has(mode, ECHOCTL) && (key < 0x20 || key == 0x7f);
    const std::array<std::uint8_t, 2> shown{'^', static_cast<std::uint8_t>(key ^ 0x40)};
    write_some(slave_.get(), caret ? Bytes(shown) : Bytes(&key, 1));
  }
  return true;
}

// As often as there can be a character to erase; more than that is nothing to the discipline.
bool Terminal::kill_line(const termios& mode) {
  const std::string keys(line_ + 1, static_cast<char>(mode.c_cc[VERASE]));
  const auto* data = reinterpret_cast<const std::uint8_t*>(keys.data());
  if (write_some(master_.get(), {data, keys.size()}) == 0) return false;
  line_ = 0;
  return true;
}

// A key that is none of the signals', although its value is one of theirs.
bool Terminal::type_literally(const termios& mode, std::uint8_t key) {
  termios brief = mode;
  for (const int index : kSignalKeys) brief.c_cc[index] = key == 0xff ? 0xfe : 0xff;
  const BriefMode changed(master_.get(), mode, brief);
  if (write_some(master_.get(), {&key, 1}) == 0) return false;
  note(brief, {&key, 1});
  return true;
}

void Terminal::discard_input() {
  std::uint8_t bytes[4096];
  for (int i = 0; slave_ && i < kDiscardReads; ++i) {
    if (read(slave_.get(), bytes, sizeof bytes) < 0 && errno != EINTR) break;
  }
}

bool Terminal::type_end() {
  termios mode{};
  if (tcgetattr(master_.get(), &mode) != 0 || mode.c_cc[VEOF] == 0) return true;
  // In the middle of a line the first one only hands over what is there.
  const bool twice = has(mode, ICANON) && line_ != 0;
  const std::array<std::uint8_t, 2> keys{mode.c_cc[VEOF], mode.c_cc[VEOF]};
  const std::size_t taken = write_some(master_.get(), Bytes(keys).first(twice ? 2 : 1));
  if (taken != 0) line_ = 0;
  return taken == (twice ? 2u : 1u);
}

}  // namespace temenos::init
