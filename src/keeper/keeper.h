// The keeper: one process per live box, outside every namespace of the box.
//
// It starts the helper (namespaces, tree, runsc) and the session (the parser of what the box says),
// and then only waits, passes fixed-size messages and ends things. No byte of the box comes here.
// When its launcher goes, the box goes, unless it is a durable one; when the keeper is killed, the
// kernel ends the helper and with it the sandbox.
#pragma once

#include "keeper/id_plan.h"
#include "temenos/error.h"

namespace temenos::keeper {

// The keeper's whole life. `control` is a SOCK_SEQPACKET socket to the launcher, which sends one
// Launch and later Messages. The process has one thread. Returns its exit status.
int keeper_main(int control);

// In the data dir of a durable box, while it lives: where its keeper listens for callers
// (SOCK_SEQPACKET; messages.h).
inline constexpr char kSocketName[] = "keeper.sock";

// Removes the box's files below the data dir, as root of the box's ids, and its directory "box".
// For what a killed keeper left; the caller holds the data dir's lock. No error when there is
// nothing.
Result<void> remove_box(int data_dir, const IdPlan& plan);
// The same with the ids of the calling user's boxes.
Result<void> remove_box(int data_dir);

// Why user namespaces cannot be had here, as far as the host tells, and the command that changes
// it.
Error no_user_namespaces(int err);

}  // namespace temenos::keeper
