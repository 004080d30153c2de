#include "tools/tandem/doctor/host_checks.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/host/control_group.h"
#include "common/host/gpus.h"
#include "common/host/host_report.h"
#include "tools/tandem/doctor/fleet_memory.h"
#include "tools/tandem/plan/memory_budget.h"

namespace tandem::doctor {
namespace {

using plan::FormatBytes;

// Connections, files of checkpoints and of a model, logs.
constexpr rlim_t kMinOpenFiles = 1024;

int64_t FreeBytes(const std::string& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return -1;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

bool HasFlag(const char* flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  }
  return false;
}

}  // namespace

void CheckProcessor(const config::v1::RunConfig& config, Findings& findings) {
  const auto cores = static_cast<int64_t>(host::UsableCores());
  const std::string kind = HasFlag("amx_bf16")      ? "AMX"
                           : HasFlag("avx512_bf16") ? "AVX-512 with bf16"
                           : HasFlag("avx512f")     ? "AVX-512"
                           : HasFlag("avx2")        ? "AVX2"
                                                    : "";
  if (kind.empty()) {
    findings.Warn("processor", absl::StrCat(Count(cores, "core"), " without AVX2"),
                  "the CPU kernels fall back to scalar code, about ten times slower; take another "
                  "machine, or GPUs");
  } else {
    findings.Ok("processor", absl::StrCat(Count(cores, "core"), ", ", kind));
  }
  const int64_t trainer = config.trainer().threads() * config.trainer().ranks();
  const int64_t rollouts = config.rollout().threads() * config.rollout().replicas();
  for (const auto& [key, threads] :
       {std::pair{"trainer.threads", trainer}, std::pair{"rollout.threads", rollouts}}) {
    if (threads <= cores) continue;
    findings.Warn("processor",
                  absl::StrFormat("%s requests %s in all, on %s", key, Count(threads, "thread"),
                                  Count(cores, "core")),
                  absl::StrCat("if all processes run here, set ", key, "=0 to share the cores"));
  }
}

void CheckDevices(const config::v1::RunConfig& config, Findings& findings) {
  const host::GpuFacts facts = host::ReadGpuFacts();
  // With endpoints the services run elsewhere.
  std::vector<std::pair<const char*, std::string>> settings;
  if (config.trainer().endpoint().empty()) {
    settings.emplace_back("trainer.device", config.trainer().device());
  }
  if (config.rollout().endpoints().empty() && config.rollout().endpoints_file().empty()) {
    settings.emplace_back("rollout.device", config.rollout().device());
  }
  for (const auto& [key, setting] : settings) {
    const absl::StatusOr<host::DeviceChoice> device =
        host::ChooseDevice(key, setting, /*local_rank=*/0, facts);
    if (device.ok()) {
      findings.Ok(key, device->description);
    } else {
      findings.Fail(key, std::string(device.status().message()),
                    "correct the setting, or install the driver or build that it needs");
    }
  }
}

void CheckLimits(Findings& findings) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < kMinOpenFiles) {
    findings.Warn("limits", absl::StrFormat("a process may open only %d files", files.rlim_cur),
                  absl::StrFormat("ulimit -n %d, or LimitNOFILE= of the service", kMinOpenFiles));
  } else {
    findings.Ok("limits", absl::StrFormat("%d open files", files.rlim_cur));
  }
  rlimit address_space{};
  getrlimit(RLIMIT_AS, &address_space);
  if (address_space.rlim_cur != RLIM_INFINITY) {
    findings.Warn("limits",
                  absl::StrCat("the address space is limited to ",
                               FormatBytes(static_cast<int64_t>(address_space.rlim_cur))),
                  "ulimit -v unlimited, because models are memory-mapped");
  }
}

void CheckSharedMemory(const config::v1::RunConfig& config, Findings& findings) {
  if (!config.trainer().shared_memory()) {
    findings.Ok("shared memory", "trainer.shared_memory is false: sockets are used");
    return;
  }
  // What ranks of one host hand each other.
  const int fd = memfd_create("tandem-doctor", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 1 << 20) != 0) {
    findings.Fail(
        "shared memory", absl::StrCat("memfd_create: ", std::strerror(errno)),
        "allow it in the container's seccomp profile, or set trainer.shared_memory=false");
  } else {
    findings.Ok("shared memory", "available to ranks of one host");
  }
  if (fd >= 0) close(fd);
  // NCCL's own.
  const int64_t free = FreeBytes("/dev/shm");
  if (free >= 0 && free < int64_t{256} << 20) {
    findings.Warn("shared memory", absl::StrCat("/dev/shm has ", FormatBytes(free)),
                  "NCCL needs more: docker run --shm-size=1g, or an emptyDir of medium Memory");
  }
}

void CheckAdapters(Findings& findings) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    findings.Warn("network", absl::StrCat("getifaddrs: ", std::strerror(errno)), "look at ip addr");
    return;
  }
  std::set<std::string> up;
  bool has_loopback = false;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6) continue;
    if ((at->ifa_flags & IFF_LOOPBACK) != 0) {
      has_loopback = true;
    } else {
      up.insert(at->ifa_name);
    }
  }
  freeifaddrs(list);
  if (!has_loopback) {
    findings.Fail("network", "the loopback adapter is down",
                  "ip link set lo up: processes of one host communicate over it");
  } else if (up.empty()) {
    findings.Warn("network", "no adapter but the loopback is up",
                  "sufficient for --local; other hosts are unreachable");
  } else {
    findings.Ok("network", absl::StrCat("adapters ", absl::StrJoin(up, ", ")));
  }
}

void CheckMemory(const plan::RunPlan& plan, Findings& findings) {
  if (!plan.fits()) {
    findings.Fail("memory", plan.problem,
                  "tandem train --dry-run prints each part; more ranks, offload or activation "
                  "checkpointing lower it");
    return;
  }
  const int64_t ranks = plan.config.trainer().ranks();
  const int64_t rollouts =
      plan.with_rollouts
          ? plan.config.rollout().replicas() *
                std::max<int64_t>(1, plan.config.rollout().tensor_model_parallel_size())
          : 0;
  // What a control group allows is not in the plan.
  const int64_t available = host::DescribeHost().available_bytes();
  const int64_t of_rank = TrainerRankBytes(plan);
  const int64_t of_rollout = rollouts > 0 ? RolloutRankBytes(plan) : 0;
  const int64_t needed = ranks * of_rank + rollouts * of_rollout;
  Finding finding;
  finding.what = "memory";
  finding.found = absl::StrCat("the plan fits: ", Count(ranks, "trainer rank"), " will take ",
                               FormatBytes(of_rank), ranks == 1 ? "" : " each");
  if (rollouts > 0) {
    absl::StrAppend(&finding.found, ", ", Count(rollouts, "rollout rank"), " ",
                    FormatBytes(of_rollout));
  }
  absl::StrAppend(&finding.found, "; ", FormatBytes(available), " are available");
  finding.measured = {{"available_bytes", available},
                      {"needed_bytes", needed},
                      {"trainer_rank_bytes", of_rank},
                      {"rollout_rank_bytes", of_rollout}};
  if (available > 0 && needed > available) {
    finding.severity = Severity::kWarning;
    finding.found = absl::StrCat("processes will take ", FormatBytes(needed), " in all, and ",
                                 FormatBytes(available), " are available now");
    finding.cure = "stop other programs on this host, or raise the limit of its control group";
  }
  findings.Add(std::move(finding));
}

void CheckDisk(const config::v1::RunConfig& config, int64_t num_parameters, Findings& findings) {
  namespace fs = std::filesystem;
  fs::path folder = fs::absolute(config.run_dir().empty() ? "runs" : config.run_dir());
  std::error_code error;
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  const std::string what = absl::StrCat("disk of ", folder.string());
  if (access(folder.c_str(), W_OK) != 0) {
    findings.Fail(what, absl::StrCat("cannot be written: ", std::strerror(errno)),
                  "set run_dir to a folder that this user can write");
    return;
  }
  // Weights and two moments in float32; a checkpoint replaces an older one only once it is whole.
  const int64_t checkpoint = 12 * num_parameters;
  const int64_t keep = config.trainer().keep_last() > 0 ? config.trainer().keep_last() + 1 : 2;
  const bool saves =
      config.trainer().save_freq() > 0 || config.trainer().save_interval_seconds() > 0;
  const int64_t least = 4 * num_parameters + (int64_t{64} << 20);  // without checkpoints
  const int64_t needed = least + (saves ? keep * checkpoint : 0);
  const int64_t free = FreeBytes(folder.string());
  const std::string room =
      absl::StrCat(FormatBytes(free), " free; a run leaves about ", FormatBytes(needed));
  if (free < needed) {
    // What would not be enough is not offered.
    std::string cure =
        absl::StrCat("free ", FormatBytes(needed - free), " more, or set run_dir elsewhere");
    if (saves && keep > 2 && free >= least + 2 * checkpoint) {
      absl::StrAppend(&cure, ", or trainer.keep_last lower");
    }
    if (saves && free >= least) {
      absl::StrAppend(&cure, ", or trainer.save_freq=0 and trainer.save_interval_seconds=0");
    }
    findings.Fail(what, room, cure);
  } else {
    findings.Ok(what, room);
  }
}

}  // namespace tandem::doctor
