#include "common/rpc/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/status/status_macros.h"

extern char** environ;

namespace tandem::rpc {
namespace {

// The thread that forks. The kernel's "parent death signal" fires when the thread that forked ends,
// not the process, so children must come from a thread that lives as long as the process.
class Forker {
 public:
  static Forker& Get() {
    static Forker* forker = new Forker;  // never destroyed
    return *forker;
  }

  pid_t Run(const std::function<pid_t()>& fork_child) {
    pid_t result = -1;
    absl::Notification done;
    {
      absl::MutexLock lock(&mu_);
      work_.push_back([&] {
        result = fork_child();
        done.Notify();
      });
    }
    done.WaitForNotification();
    return result;
  }

 private:
  Forker() {
    std::thread([this] {
      while (true) {
        std::function<void()> next;
        {
          absl::MutexLock lock(&mu_);
          mu_.Await(absl::Condition(
              +[](std::deque<std::function<void()>>* w) { return !w->empty(); }, &work_));
          next = std::move(work_.front());
          work_.pop_front();
        }
        next();
      }
    }).detach();
  }

  absl::Mutex mu_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::string> FindProgram(const std::string& program) {
  if (absl::StrContains(program, "/")) {
    if (access(program.c_str(), X_OK) == 0) return program;
    return absl::NotFoundError(absl::StrFormat("cannot run %s: %s", program, strerror(errno)));
  }
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(absl::StrFormat("cannot run %s: it is not in PATH", program));
}

std::vector<std::string> ChildEnvironment(
    const std::map<std::string, std::string>& additions,
    const std::function<bool(const std::string& name)>& inherits) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> split =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    if (inherits == nullptr || inherits(split.first)) all[split.first] = split.second;
  }
  for (const auto& [key, value] : additions) all[key] = value;
  std::vector<std::string> out;
  for (const auto& [key, value] : all) out.push_back(absl::StrCat(key, "=", value));
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

struct ExecPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  int input_fd;  // -1: /dev/null
  int output_fd;
  int stderr_fd;
  int error_fd;  // closed by a successful exec, otherwise receives errno
  bool own_process_group;
  pid_t parent;
};

// Between fork and exec in a process with threads: async-signal-safe calls only.
[[noreturn]] void ExecInChild(const ExecPlan& plan) {
  if (plan.own_process_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent ended before the line above
  struct sigaction defaults;
  memset(&defaults, 0, sizeof(defaults));
  defaults.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 32; ++signal) sigaction(signal, &defaults, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input_fd = plan.input_fd >= 0 ? plan.input_fd : open("/dev/null", O_RDONLY);
  if (input_fd >= 0) dup2(input_fd, STDIN_FILENO);
  dup2(plan.output_fd, STDOUT_FILENO);
  dup2(plan.stderr_fd, STDERR_FILENO);
  // Keeps the parent's sockets and pipes from the child.
  syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  execve(plan.program, plan.argv, plan.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &error, sizeof(error));
  _exit(127);
}

// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace

ChildProcess::ChildProcess(ChildProcessOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildProcessOptions options) {
  if (options.argv.empty()) return absl::InvalidArgumentError("a child process needs an argv");
  if (options.name.empty()) options.name = options.argv[0];
  ASSIGN_OR_RETURN(const std::string program, FindProgram(options.argv[0]));
  std::vector<std::string> arguments = options.argv;
  std::vector<std::string> environment = ChildEnvironment(options.environment, options.inherits);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);

  Descriptor log(options.log_path.empty() ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
                                          : open(options.log_path.c_str(),
                                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) {
    return absl::UnavailableError(absl::StrFormat("%s: cannot open its log %s: %s", options.name,
                                                  options.log_path, strerror(errno)));
  }
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: cannot make a pipe: %s", options.name, strerror(errno)));
  }
  Descriptor read_end(error_pipe[0]);
  Descriptor write_end(error_pipe[1]);

  const ExecPlan plan{.program = program.c_str(),
                      .argv = argv.data(),
                      .environment = envp.data(),
                      .input_fd = options.stdin_fd,
                      .output_fd = options.stdout_fd >= 0 ? options.stdout_fd : log.get(),
                      .stderr_fd = options.stderr_fd >= 0 ? options.stderr_fd : log.get(),
                      .error_fd = write_end.get(),
                      .own_process_group = options.own_process_group,
                      .parent = getpid()};
  const host::MemoryKills kills_before =
      host::CountMemoryKills(options.control_groups, options.vmstat);
  int fork_error = 0;
  const pid_t pid = Forker::Get().Run([&plan, &fork_error] {
    const pid_t child = fork();
    if (child == 0) ExecInChild(plan);
    if (child < 0) fork_error = errno;
    return child;
  });
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: fork failed: %s", options.name, strerror(fork_error)));
  }
  write_end.Close();
  int exec_error = 0;
  ssize_t got;
  do {
    got = read(read_end.get(), &exec_error, sizeof(exec_error));  // ends with the exec
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(exec_error))) {
    waitpid(pid, nullptr, 0);
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: cannot run %s: %s", options.name, program, strerror(exec_error)));
  }
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(options)));
  child->pid_ = pid;
  child->kills_before_ = kills_before;
  child->reaper_ = std::thread([raw = child.get()] { raw->Reap(); });
  return child;
}

ChildProcess::~ChildProcess() {
  Kill();
  reaper_.join();
}

void ChildProcess::Reap() {
  siginfo_t info;
  // WNOWAIT keeps the pid taken until mu_ is held, so that Signal() never hits a stranger.
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  {
    absl::MutexLock lock(&mu_);
    // Kills what the child left behind in its group.
    if (options_.own_process_group) kill(-pid_, SIGKILL);
    while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(wait_status_) && WTERMSIG(wait_status_) == SIGKILL) {
      const auto& place = options_.control_groups;
      memory_hint_ = host::DescribeMemoryKill(
          kills_before_, host::CountMemoryKills(place, options_.vmstat), place);
    }
    ended_ = true;
  }
  if (options_.on_exit) options_.on_exit();
}

void ChildProcess::Signal(int signal) {
  absl::MutexLock lock(&mu_);
  if (ended_) return;
  // The group exists from the child's first instructions on; before that the pid alone does.
  if (!options_.own_process_group || kill(-pid_, signal) != 0) kill(pid_, signal);
}

void ChildProcess::Terminate() { Signal(SIGTERM); }
void ChildProcess::Kill() { Signal(SIGKILL); }

bool ChildProcess::Wait(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&ended_), timeout);
}

void ChildProcess::Stop(absl::Duration grace) {
  Terminate();
  if (Wait(grace)) return;
  Kill();
  Wait(absl::InfiniteDuration());  // nothing survives SIGKILL
}

std::string ChildProcess::ExitDescription() {
  absl::MutexLock lock(&mu_);
  if (!ended_) return "running";
  if (WIFSIGNALED(wait_status_)) {
    return absl::StrCat("killed by ", SignalName(WTERMSIG(wait_status_)),
                        memory_hint_.empty() ? "" : ": ", memory_hint_);
  }
  return absl::StrCat("exited with ", WEXITSTATUS(wait_status_));
}

absl::Status ChildProcess::ExitStatus() {
  const std::string how = ExitDescription();
  absl::MutexLock lock(&mu_);
  if (!ended_) return absl::FailedPreconditionError(absl::StrCat(name(), " still runs"));
  if (WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      name(), " ", how, options_.log_path.empty() ? "" : "; its log is ", options_.log_path));
}

}  // namespace tandem::rpc
