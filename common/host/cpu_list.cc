#include "common/host/cpu_list.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::host {

absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text) {
  std::vector<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= CPU_SETSIZE) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected CPU numbers and ranges such as 0-3,8, found \"", part, "\""));
    }
    for (int cpu = first; cpu <= last; ++cpu) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) {
        return absl::InvalidArgumentError(absl::StrCat("CPU ", cpu, " is named twice"));
      }
      cpus.push_back(cpu);
    }
  }
  return cpus;
}

std::string FormatCpuList(absl::Span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", cpus[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> ShareOfCpus(absl::Span<const int> cpus, int64_t begin, int64_t end, int64_t of) {
  const auto count = static_cast<int64_t>(cpus.size());
  if (count < of) return {};
  return {cpus.begin() + count * begin / of, cpus.begin() + count * end / of};
}

absl::Status PinThisThread(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof(one), &one) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("this process may not run on CPU ", cpu,
                                                 ", only on ", FormatCpuList(AllowedCpus())));
}

}  // namespace tandem::host
