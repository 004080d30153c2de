// Runs a program of build/bin and catches what it writes.
#ifndef TANDEM_TESTS_SUPPORT_PROGRAM_H_
#define TANDEM_TESTS_SUPPORT_PROGRAM_H_

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tandem::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal where one ended it
  std::string out;
  std::string err;
};

// A program of build/bin; a path is taken as it is.
inline std::string BinaryPath(const std::string& name) {
  if (!name.empty() && name.front() == '/') return name;
  const char* bin = std::getenv("TANDEM_BIN");
  return std::string(bin != nullptr ? bin : "build/bin") + "/" + name;
}

inline std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Ends after `timeout_seconds` at the latest (exit code 124).
inline ProgramResult RunProgram(const std::string& program, const std::vector<std::string>& args,
                                int timeout_seconds = 240) {
  const TempFolder folder;
  const auto quote = [](const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
  };
  std::string command =
      "timeout " + std::to_string(timeout_seconds) + " " + quote(BinaryPath(program));
  for (const std::string& arg : args) command += " " + quote(arg);
  command += " </dev/null >" + quote(folder / "out") + " 2>" + quote(folder / "err");
  const int status = std::system(command.c_str());
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadWhole(folder / "out");
  result.err = ReadWhole(folder / "err");
  return result;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_PROGRAM_H_
