// File operations on behalf of the tools outside: read, write, list, stat, with init's rights
// inside the box. Paths are the box's own, so links are followed as the box's programs would;
// nothing here protects the box from itself. Only regular files are read and written: a fifo or a
// device could block init.
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "init/directories.h"
#include "wire/box_protocol.h"

namespace temenos::init {

// STAT, at once: STAT_REPLY or ERROR.
void stat_file(std::uint32_t id, const box_wire::Stat& request, ByteQueue& out);

// READ, WRITE, LIST or REMOVE while it goes on.
class FileJob {
 public:
  // Null when it ended at once; the answer is in `out` then.
  static std::unique_ptr<FileJob> read(std::uint32_t id, const box_wire::Read& request,
                                       ByteQueue& out);
  static std::unique_ptr<FileJob> write(std::uint32_t id, const box_wire::Write& request,
                                        ByteQueue& out);
  static std::unique_ptr<FileJob> list(std::uint32_t id, const box_wire::List& request,
                                       ByteQueue& out);
  static std::unique_ptr<FileJob> remove(std::uint32_t id, const box_wire::Remove& request,
                                         ByteQueue& out);
  ~FileJob();  // an unfinished atomic write leaves nothing behind

  // Something can be sent now.
  bool runnable() const;
  // One bounded piece of work. True when the job is over (its answer is in the queue).
  bool step();
  // False: session broke the protocol.
  bool credit(const box_wire::Credit& credit);
  // `over` is set when the job ended with it.
  bool body(box_wire::Bytes payload, bool& over);
  bool body_end();
  void cancel();

 private:
  FileJob(std::uint32_t id, ByteQueue& out) : id_(id), out_(out) {}
  bool step_read();
  bool step_list();
  bool step_removal();
  int open_target(const box_wire::Write& request);
  int open_temporary(mode_t mode, const struct stat* owner);
  int commit_target();
  void fail(int error);

  std::uint32_t id_;
  ByteQueue& out_;
  UniqueFd fd_;
  DIR* listing_ = nullptr;
  std::unique_ptr<TreeRemoval> removal_;
  std::uint32_t credit_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t count_ = 0;
  std::uint32_t body_done_ = 0;  // credit to give back
  bool writes_ = false;
  box_wire::Write::How how_ = box_wire::Write::How::kReplace;
  UniqueFd directory_;
  std::string name_;       // in directory_
  std::string temporary_;  // the same, until it is renamed
};

}  // namespace temenos::init
