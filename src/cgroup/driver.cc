#include "cgroup/driver.h"

#include <iterator>

namespace temenos::cgroup {
namespace {

constexpr std::string_view kNames[] = {"none", "systemd-user", "systemd-system", "cgroup2",
                                       "cgroup1"};

}  // namespace

std::string_view driver_name(Driver driver) {
  const auto index = static_cast<std::size_t>(driver);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

Driver driver_named(std::string_view name) {
  for (const Driver driver : kDrivers) {
    if (driver_name(driver) == name) return driver;
  }
  return Driver::kNone;
}

std::string Controls::missing() const {
  std::string text;
  const auto add = [&text](bool held, const char* what) {
    if (!held) text += (text.empty() ? "" : " and ") + std::string(what);
  };
  add(memory, "memory");
  add(cpu, "CPU");
  add(tasks, "processes");
  return text;
}

}  // namespace temenos::cgroup
