// About.
#pragma once
