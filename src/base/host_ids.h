// The id ranges that temenos uses when it runs as root, in one place (user_namespaces(7) for their
// meaning).
#pragma once

namespace temenos {

// Box root of a root-run box is this host id; the box's 65,536 ids follow it. Below the ranges that
// useradd(8) hands out to people (100000 up) lies too little room, so it starts where systemd's
// container ranges start.
inline constexpr unsigned kBoxIdBase = 524288;
inline constexpr unsigned kBoxIdCount = 65536;
// Who parses box bytes when temenos runs as root: in no box's map.
inline constexpr unsigned kSessionId = kBoxIdBase + kBoxIdCount;

}  // namespace temenos
