#include "common/status/exceptions.h"

#include <new>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/host/memory_limit.h"

namespace tandem {
namespace {

bool IsForWantOfMemory(const std::string& text) {
  for (const char* words : {"out of memory", "can't allocate memory", "Cannot allocate memory",
                            "cannot allocate memory"}) {
    if (absl::StrContains(text, words)) return true;
  }
  return false;
}

}  // namespace

absl::Status StatusOf(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    text = "out of memory";
  } else if (const auto* system = dynamic_cast<const std::system_error*>(&error);
             system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    text = absl::StrCat("cannot start a thread (", text,
                        "): memory or threads are exhausted (ulimit -u, pids.max)");
  } else if (!IsForWantOfMemory(text)) {
    return absl::InternalError(text);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(text, ": ", host::DescribeMemoryLimits(), "; ", host::kLowerMemory));
}

}  // namespace tandem
