#include <gtest/gtest.h>
/* #include <CLI/CLI.hpp> */
#include <nlohmann/json.hpp>
#include <temenos/box.h>
