#include "common/telemetry/uncaught_exceptions.h"

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/exceptions.h"
#include "common/telemetry/log.h"

namespace tandem::telemetry {
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
    LogError(absl::StrCat(Program(), " ends"), {{"error", StatusOf(error).ToString()}});
  } catch (...) {
    LogError(absl::StrCat(Program(), " ends"), {{"error", "an unknown exception"}});
  }
  _exit(1);
}

}  // namespace

void NameUncaughtExceptions(const std::string& program) {
  Program() = program;
  Reserve() = std::make_unique<char[]>(kReserveBytes);
  std::set_terminate(OnTerminate);
}

}  // namespace tandem::telemetry
