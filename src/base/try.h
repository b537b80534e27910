// TRY(x): the value of a Result, or return its error from the enclosing function.
#pragma once

#include <utility>

#include "temenos/error.h"

namespace temenos::detail {
template <typename T>
T take(Result<T>&& result) {
  return std::move(*result);
}
inline void take(Result<void>&&) {}
}  // namespace temenos::detail

// A statement expression (clang and gcc), because C++20 has no other way to return from inside one.
// The counter keeps the names of nested ones apart.
#define TRY(expression) TEMENOS_TRY_COUNTED(expression, __COUNTER__)
#define TEMENOS_TRY_COUNTED(expression, n) TEMENOS_TRY_NAMED(expression, n)
#define TEMENOS_TRY_NAMED(expression, n)                                                  \
  ({                                                                                      \
    auto try_result_##n = (expression);                                                   \
    if (!try_result_##n) return ::tl::make_unexpected(std::move(try_result_##n).error()); \
    ::temenos::detail::take(std::move(try_result_##n));                                   \
  })
