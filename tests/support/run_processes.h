// The processes of a run that a test has started, found by what stands in their command lines.
#ifndef TANDEM_TESTS_SUPPORT_RUN_PROCESSES_H_
#define TANDEM_TESTS_SUPPORT_RUN_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/program.h"

namespace tandem::testing {

// Processes of `program` whose command line holds `text`.
inline std::vector<pid_t> ProcessesOf(const std::string& program, const std::string& text) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = ReadWhole(it->path() / "cmdline");
    if (std::filesystem::path(command.c_str()).filename() != program) continue;
    if (command.find(text) != std::string::npos) pids.push_back(std::stoi(name));
  }
  return pids;
}

// The service processes of a run.
inline std::vector<pid_t> ServicesOf(const std::string& text) {
  std::vector<pid_t> pids = ProcessesOf("tandem-trainer", text);
  for (const pid_t pid : ProcessesOf("tandem-rollout", text)) pids.push_back(pid);
  return pids;
}

// Waits for a condition, polling; false when it does not come true in time.
template <typename Condition>
bool Eventually(Condition condition, int seconds, int poll_milliseconds = 20) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(poll_milliseconds));
  }
  return condition();
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_RUN_PROCESSES_H_
