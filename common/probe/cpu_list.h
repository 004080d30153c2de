// The processors of this machine, by the numbers that the system gives them.
#ifndef TANDEM_COMMON_PROBE_CPU_LIST_H_
#define TANDEM_COMMON_PROBE_CPU_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::probe {

// Numbers and ranges, "0-3,8", in the order in which they stand. INVALID_ARGUMENT says what is no
// number, or stands twice.
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);
std::string FormatCpuList(absl::Span<const int> cpus);

// Those that this process may run on, ascending.
std::vector<int> AllowedCpus();

// The part [begin, end) of `of` equal parts, of neighbours; empty where there are fewer than parts.
std::vector<int> ShareOfCpus(absl::Span<const int> cpus, int64_t begin, int64_t end, int64_t of);

// The calling thread, and threads that it starts, run on this one alone. INVALID_ARGUMENT, with
// those that are allowed, where the process may not run on it.
absl::Status PinThisThread(int cpu);

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_CPU_LIST_H_
