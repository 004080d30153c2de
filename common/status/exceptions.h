// Turns exceptions of libraries into Status. Our own code throws nothing that a user or peer can
// cause.
//
//   const absl::Status status = Catch([&] { return Run(); });
//   reactor->Finish(rpc::ToGrpcStatus(status));
#ifndef TANDEM_COMMON_STATUS_EXCEPTIONS_H_
#define TANDEM_COMMON_STATUS_EXCEPTIONS_H_

#include <exception>

#include "absl/status/status.h"

namespace tandem {

// RESOURCE_EXHAUSTED if memory or threads ran out, with the limits and what to lower; otherwise
// INTERNAL with the first line of the exception's text, because LibTorch appends its stack.
absl::Status StatusOf(const std::exception& error);

// Returns the result of `function`, a Status or a StatusOr; StatusOf() the exception if it throws.
template <typename Function>
auto Catch(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

}  // namespace tandem

#endif  // TANDEM_COMMON_STATUS_EXCEPTIONS_H_
