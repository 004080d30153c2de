// This machine's processors, by the system's numbers.
#ifndef TANDEM_COMMON_HOST_CPU_LIST_H_
#define TANDEM_COMMON_HOST_CPU_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::host {

// Parses numbers and ranges, "0-3,8", and keeps their order. INVALID_ARGUMENT names what is no
// number or is repeated.
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);
std::string FormatCpuList(absl::Span<const int> cpus);

// The CPUs that this process may run on, ascending.
std::vector<int> AllowedCpus();

// Splits `cpus` into `of` equal parts of neighbours and returns parts [begin, end); empty if there
// are fewer CPUs than parts.
std::vector<int> ShareOfCpus(absl::Span<const int> cpus, int64_t begin, int64_t end, int64_t of);

// Pins the calling thread, and threads that it starts later, to one CPU. INVALID_ARGUMENT, with the
// allowed CPUs, if the process may not run on it.
absl::Status PinThisThread(int cpu);

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_CPU_LIST_H_
