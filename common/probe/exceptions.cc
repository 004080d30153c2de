#include "common/probe/exceptions.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/probe/memory_limit.h"
#include "common/telemetry/log.h"

namespace tandem::probe {
namespace {

// Freed to make room for the message.
constexpr size_t kReserveBytes = 1 << 20;
std::unique_ptr<char[]>& Reserve() {
  static auto* reserve = new std::unique_ptr<char[]>;
  return *reserve;
}

std::string& Program() {
  static auto* program = new std::string;
  return *program;
}

[[noreturn]] void OnTerminate() {
  const std::exception_ptr thrown = std::current_exception();
  if (thrown == nullptr) std::abort();  // a mistake of ours
  Reserve().reset();
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    telemetry::LogError(absl::StrCat(Program(), " ends"), {{"error", StatusOf(error).ToString()}});
  } catch (...) {
    telemetry::LogError(absl::StrCat(Program(), " ends"), {{"error", "an unknown exception"}});
  }
  _exit(1);
}

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
      absl::StrCat(text, ": ", DescribeMemoryLimits(), "; ", kLowerMemory));
}

void NameUncaughtExceptions(const std::string& program) {
  Program() = program;
  Reserve() = std::make_unique<char[]>(kReserveBytes);
  std::set_terminate(OnTerminate);
}

}  // namespace tandem::probe
