// What libraries throw, as a Status. Our own code throws nothing that anyone could cause.
//
//   std::thread([reactor] { reactor->Finish(rpc::ToGrpcStatus(probe::Catch([&] { return Run();
//   })));
//   });
#ifndef TANDEM_COMMON_PROBE_EXCEPTIONS_H_
#define TANDEM_COMMON_PROBE_EXCEPTIONS_H_

#include <exception>
#include <string>

#include "absl/status/status.h"

namespace tandem::probe {

// RESOURCE_EXHAUSTED where memory or threads ran out, with the limits and what to lower; INTERNAL
// with the first line of what it says otherwise, for LibTorch adds its stack.
absl::Status StatusOf(const std::exception& error);

// What `function` returns, a Status or a StatusOr; StatusOf() what it throws.
template <typename Function>
auto Catch(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return StatusOf(error);
  }
}

// An exception that nobody catches, on whichever thread, ends the process with a log line that
// names the cause, and exit code 1, instead of by SIGABRT without a word. First in main().
void NameUncaughtExceptions(const std::string& program);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_EXCEPTIONS_H_
