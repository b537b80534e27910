// The box's first connection: to an address that its network must refuse. That the refusal arrives
// is seen outside, and proves, before anything runs here, that what leaves the box is judged.
#pragma once

namespace temenos::init {

// One TCP connection, closed at once; how it ends does not matter. Waits for some seconds at most.
void knock(const char* address, const char* port);

}  // namespace temenos::init
