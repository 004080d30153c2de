// Describes the limits on this process's memory, for whoever reads that it ran out.
#ifndef TANDEM_COMMON_HOST_MEMORY_LIMIT_H_
#define TANDEM_COMMON_HOST_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>

#include "common/host/control_group.h"

namespace tandem::host {

// The advice that ends every message about lack of memory.
inline constexpr char kLowerMemory[] =
    "lower rollout.kv_cache_megabytes or trainer.max_tokens_per_micro_batch, or set "
    "trainer.activation_checkpointing or trainer.offload (tandem train --dry-run prints what a "
    "rank needs), or raise the limit";

// "37.4 MiB are resident; ulimit -v (RLIMIT_AS) allows 4.0 GiB; memory.max of /sys/fs/cgroup/pod is
// 8.0 GiB; the host has 1.2 GiB left". Omits limits that are not set.
std::string DescribeMemoryLimits(const ControlGroupPlace& place = {});

// How many processes the kernel's OOM killer has ended so far. 0 if the kernel does not report it.
struct MemoryKills {
  int64_t in_group = 0;  // in the control group of this process, or below it
  int64_t on_host = 0;
};
MemoryKills CountMemoryKills(const ControlGroupPlace& place = {},
                             const std::string& vmstat = "/proc/vmstat");

// Explains to rpc::ChildProcess why a child ended by SIGKILL: "the kernel ended a process of this
// control group for want of memory (oom_kill 2, memory.max 8.0 GiB); lower ...". Empty if `now`
// counts no more than `before`, which was taken when the child started.
std::string DescribeMemoryKill(const MemoryKills& before, const MemoryKills& now,
                               const ControlGroupPlace& place = {});

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_MEMORY_LIMIT_H_
