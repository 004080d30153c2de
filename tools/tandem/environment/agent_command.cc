#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/host/file_descriptor.h"
#include "common/io/json_text.h"
#include "common/rpc/child_process.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/agent_program.h"
#include "tools/tandem/environment/output_tail.h"

namespace tandem::environment {
namespace {

constexpr char kShell[] = "/bin/sh";
// Linux takes up to 128 KiB per variable.
constexpr size_t kMaxVariableBytes = size_t{64} << 10;
constexpr size_t kMaxOutputBytes = size_t{64} << 10;
constexpr size_t kMaxLogBytes = size_t{2} << 10;
// How soon a cancelled or overdue program is noticed.
constexpr int kPollMilliseconds = 50;
constexpr absl::Duration kCheckTimeout = absl::Seconds(10);

// A file in memory that holds `text`, at its beginning.
absl::StatusOr<host::FileDescriptor> MemoryFile(const std::string& text) {
  host::FileDescriptor file(memfd_create("row", MFD_CLOEXEC));
  if (!file.is_open()) return absl::ErrnoToStatus(errno, "cannot make a file in memory");
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "cannot write the row");
    done += static_cast<size_t>(written);
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) {
    return absl::ErrnoToStatus(errno, "cannot rewind the row");
  }
  return file;
}

// None of the driver's own variables, such as keys and places of logs.
bool Inherits(const std::string& name) { return !absl::StartsWith(name, "TANDEM_"); }

std::string EndOf(const std::string& text, size_t max_bytes) {
  const std::string end = text.substr(text.size() - std::min(text.size(), max_bytes));
  return std::string(absl::StripAsciiWhitespace(end));
}

class AgentCommand : public AgentProgram {
 public:
  explicit AgentCommand(std::string command) : command_(std::move(command)) {}

  absl::Status Check() const override { return CheckCommand(command_); }

  AgentRun Run(const AgentTask& task, absl::Time deadline,
               const std::function<bool()>& cancelled) const override {
    AgentRun run;
    run.status = Play(task, deadline, cancelled, run);
    return run;
  }

 private:
  absl::Status Play(const AgentTask& task, absl::Time deadline,
                    const std::function<bool()>& cancelled, AgentRun& run) const {
    const std::string row = io::JsonText(task.row);
    ASSIGN_OR_RETURN(const host::FileDescriptor input, MemoryFile(row));
    ASSIGN_OR_RETURN(OutputTail output, OutputTail::Open(kMaxOutputBytes));
    ASSIGN_OR_RETURN(OutputTail errors, OutputTail::Open(kMaxLogBytes));
    rpc::ChildProcessOptions options;
    options.name = "agent";
    options.argv = {kShell, "-c", command_};
    options.environment = {{"OPENAI_BASE_URL", task.base_url},
                           {"OPENAI_API_KEY", task.session_id},
                           {"TANDEM_SESSION_ID", task.session_id},
                           {"TANDEM_SEED", absl::StrCat(task.seed)},
                           {"TANDEM_SAMPLE", absl::StrCat(task.sample)},
                           {"TANDEM_ATTEMPT", absl::StrCat(task.attempt)}};
    if (row.size() <= kMaxVariableBytes) options.environment["TANDEM_PROMPT"] = row;
    options.inherits = Inherits;
    options.stdin_fd = input.get();
    options.stdout_fd = output.write_end();
    options.stderr_fd = errors.write_end();
    ASSIGN_OR_RETURN(const auto process, rpc::ChildProcess::Start(std::move(options)));
    output.CloseWriteEnd();
    errors.CloseWriteEnd();
    const absl::Status ended = Await(*process, output, errors, deadline, cancelled);
    run.log = EndOf(errors.text(), kMaxLogBytes);
    RETURN_IF_ERROR(ended);
    RETURN_IF_ERROR(process->ExitStatus());
    ASSIGN_OR_RETURN(run.reward, ReadReward(output.text()));
    return absl::OkStatus();
  }

  // Reads what the process writes until it has ended, or is killed.
  static absl::Status Await(rpc::ChildProcess& process, OutputTail& output, OutputTail& errors,
                            absl::Time deadline, const std::function<bool()>& cancelled) {
    absl::Status why;
    bool output_open = true, errors_open = true;
    while (process.running()) {
      if (why.ok() && (cancelled() || absl::Now() >= deadline)) {
        why = cancelled()
                  ? absl::CancelledError("the episode is no longer needed")
                  : absl::DeadlineExceededError(
                        "the agent had not ended after environment.timeout_s and was killed");
        process.Kill();  // with its group
      }
      pollfd ends[] = {{output_open ? output.read_end() : -1, POLLIN, 0},
                       {errors_open ? errors.read_end() : -1, POLLIN, 0}};
      if (output_open || errors_open) {
        ::poll(ends, 2, kPollMilliseconds);
      } else {
        process.Wait(absl::Milliseconds(kPollMilliseconds));
      }
      output_open = output_open && output.Read();
      errors_open = errors_open && errors.Read();
    }
    // What it left in the pipes; a process that left the group may still hold them open.
    output.Read();
    errors.Read();
    return why;
  }

  const std::string command_;
};

// The first word that is no assignment of a variable.
std::string FirstWord(const std::string& command) {
  for (const absl::string_view word :
       absl::StrSplit(command, absl::ByAnyChar(" \t\n;|&<>()"), absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    const absl::string_view name = word.substr(0, equals);
    const bool assigns =
        equals != absl::string_view::npos && std::all_of(name.begin(), name.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
        });
    if (!assigns) return std::string(word);
  }
  return "";
}

}  // namespace

std::unique_ptr<AgentProgram> MakeAgentCommand(std::string command) {
  return std::make_unique<AgentCommand>(std::move(command));
}

absl::Status CheckCommand(const std::string& command) {
  const std::string word = FirstWord(command);
  if (word.empty())
    return absl::NotFoundError("environment.command: expected a program, found none");
  // What a variable or quotes stand for is the shell's to say.
  if (word.find_first_of("$'\"`\\{[!") != std::string::npos) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const auto process,
      rpc::ChildProcess::Start(
          {.name = "sh",
           .argv = {kShell, "-c", "command -v -- \"$1\" >/dev/null 2>&1", "sh", word}}));
  process->Wait(kCheckTimeout);
  if (process->ExitStatus().ok()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("environment.command: ", word,
                                          " is neither a program in PATH nor a file to run"));
}

}  // namespace tandem::environment
