// Edits of the allowlist of a box whose network is filtered: Box::allow_hosts() and deny_hosts().
//
// They are the trusted caller's: nothing in a box can reach them. An edit is of a live box and of
// all its later lives at once, and does not start a box. Edits from several handles, in any
// processes, follow one another, and none is lost; a start waits for them, and they for it.
//
// Whatever dies in the middle of a call, a live box never reaches what its list (allowed_hosts())
// does not name, and an entry is not open again once a deny of it has returned:
//   allow  the list is written first, then the live box gets it. On an error nothing has changed.
//          If the caller was killed, the list may have the entries and the live box get them by the
//          next edit or start.
//   deny   the live box loses them first, then the list is written. On an error the list has them
//          still; the live box may be without them until it ends (where a full disk cannot be
//          written, closing still works). Deny them again.
// When a deny returns, connections that only the denied entries had allowed have ended. What had
// been sent by then may still arrive.
#pragma once

#include <string>
#include <vector>

namespace temenos {

struct AllowlistEdit {
  std::vector<std::string> entries;  // the list now, in canonical form, sorted
  // To be shown to the person who edits, a sentence each: what was denied and is still allowed by
  // another entry.
  std::vector<std::string> notes;
};

}  // namespace temenos
