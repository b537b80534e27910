// The verbs of attack.cc. Each prints what it tried (report.h) and returns an exit status.
#pragma once

#include <string>
#include <vector>

namespace temenos::leak {

using Words = std::vector<std::string>;

// PATH…: every way to change a file or a directory with what is in it, before and after every way
// to make its mount writable.
int attack_read_only(const Words& paths);
// PATH…: every way to move a mount point, or what lies above it, out of the way.
int attack_pins(const Words& paths);
// SECRET-TEXT WRITABLE-DIR PATH…: every way to read a file that is not mounted.
int attack_secret(const Words& words);
// TEXT PATH…: which of PATH exist; TEXT anywhere in /proc; descriptors; host names.
int look_around(const Words& words);
// DIR: every way to leave a file with a foreign owner, a set-id bit, a device or a capability
// there.
int attack_ownership(const Words& words);
// PORT ABSTRACT-NAME SOCKET-PATH: every way to a listener of the host.
int attack_network(const Words& words);
// TAG: takes one of everything that another box might see, prints "ready", waits for the end of
// stdin.
int occupy(const Words& words);
// TAG: what of that is seen from here.
int look_for_other(const Words& words);

}  // namespace temenos::leak
