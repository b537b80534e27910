// The limit of a box's files as a project quota of the host's file system: kept by its kernel,
// exactly, for everything that is written through whichever descriptor or mapping.
//
// The project of a box is numbered after the inode of its data dir, so two boxes on one file system
// never share one and nothing has to be kept about it.
//
// Thread-safety: plain functions. Caller: root of the host.
#pragma once

#include "disk/use.h"
#include "temenos/error.h"

namespace temenos::disk {

// Whether that can be had for boxes whose data dirs lie in `directory`; an error says why not.
Result<void> can_hold_by_quota(int directory);

// The files of the box in `data_dir`, which lie in `directory` below it, take no more from now on.
// An error says why somebody else has to watch.
Result<void> hold_by_quota(int data_dir, int directory, const Limit& limit);

// What they take, as the file system says it of `directory` once it is held: no rights are needed.
Result<Use> use_by_quota(int directory);

// Takes the limit away again; no error where there is none. Of a box that is removed, after its
// files, or that is to have no limit any more.
void release_quota(int data_dir);

}  // namespace temenos::disk
