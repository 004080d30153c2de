#include "tools/tandem/driver/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/text/printable.h"

namespace tandem::driver {
namespace {

// Without a terminal, writes at most one line per interval.
constexpr absl::Duration kLineInterval = absl::Seconds(5);

std::string Remaining(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  if (seconds >= 3600) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

}  // namespace

Progress::Progress(std::string title, int64_t total_steps, bool quiet)
    : title_(std::move(title)),
      total_steps_(total_steps),
      start_(absl::Now()),
      terminal_(isatty(STDERR_FILENO) == 1),
      quiet_(quiet),
      last_shown_(absl::InfinitePast()) {}

Progress::~Progress() {
  absl::MutexLock lock(&mu_);
  if (line_open_) std::fputc('\n', stderr);
}

double Progress::tokens_per_second() const {
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start_);
  return seconds > 0 ? static_cast<double>(tokens_.load()) / seconds : 0;
}

void Progress::Clear() {
  if (line_open_) std::fputs("\r\033[K", stderr);
  line_open_ = false;
}

void Progress::Note(const std::string& text) {
  absl::MutexLock lock(&mu_);
  Clear();
  absl::FPrintF(stderr, "%s\n", text::Printable(text));
}

void Progress::Report(const std::string& text) {
  if (!quiet_) Note(text);
}

void Progress::Update(int64_t step, const std::vector<std::string>& facts) {
  if (quiet_) return;
  const absl::Time now = absl::Now();
  if (first_step_ < 0) first_step_ = step - 1;
  const bool last = step == total_steps_;
  if (!terminal_ && !last && now - last_shown_ < kLineInterval) return;
  last_shown_ = now;
  std::string line = absl::StrFormat("%s %d/%d", title_, step, total_steps_);
  for (const std::string& fact : facts) absl::StrAppend(&line, " | ", fact);
  absl::StrAppend(&line, absl::StrFormat(" | %.0f tok/s", tokens_per_second()));
  if (step > first_step_ && !last) {
    const absl::Duration left =
        (now - start_) / (step - first_step_) * static_cast<double>(total_steps_ - step);
    absl::StrAppend(&line, " | ", Remaining(left), " left");
  }
  absl::MutexLock lock(&mu_);
  Clear();
  std::fputs(text::PrintableLine(line).c_str(), stderr);
  if (terminal_ && !last) {
    line_open_ = true;
  } else {
    std::fputc('\n', stderr);
  }
  std::fflush(stderr);
}

}  // namespace tandem::driver
