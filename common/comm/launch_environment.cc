#include "common/comm/launch_environment.h"

#include <cctype>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr size_t kMinSecretBytes = 16;

using GetEnv = std::function<std::optional<std::string>(const std::string&)>;

absl::StatusOr<int> ReadNumber(const GetEnv& get_env, const std::string& name, int least,
                               int most) {
  const std::optional<std::string> text = get_env(name);
  if (!text.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not set; set it, or launch with torchrun"));
  }
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected a number from ", least, " to ",
                                                   most, ", found '", *text, "'"));
  }
  return value;
}

constexpr int kMaxRanks = 1 << 20;

// Rank and world size under two names; the world is read first, so that the rank's range is known.
absl::Status ReadPlace(const GetEnv& get_env, const std::string& rank, const std::string& world,
                       LaunchEnvironment& out) {
  ASSIGN_OR_RETURN(out.world_size, ReadNumber(get_env, world, 1, kMaxRanks));
  ASSIGN_OR_RETURN(out.rank, ReadNumber(get_env, rank, 0, out.world_size - 1));
  return absl::OkStatus();
}

absl::StatusOr<int> Ordinal(const std::string& pod_name, int world_size) {
  size_t begin = pod_name.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(pod_name[begin - 1]))) --begin;
  int ordinal = 0;
  if (begin == 0 || pod_name[begin - 1] != '-' ||
      !absl::SimpleAtoi(pod_name.substr(begin), &ordinal) || ordinal >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("POD_NAME: expected NAME-ORDINAL with an ordinal below ", "WORLD_SIZE (",
                     world_size, "), found '", pod_name, "'"));
  }
  return ordinal;
}

}  // namespace

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const GetEnv& get_env) {
  LaunchEnvironment out;
  bool local_rank_is_rank = true;
  std::string local_world = "LOCAL_WORLD_SIZE";
  if (get_env("RANK").has_value() ||
      (get_env("WORLD_SIZE").has_value() && !get_env("POD_NAME").has_value())) {
    RETURN_IF_ERROR(ReadPlace(get_env, "RANK", "WORLD_SIZE", out));
    if (get_env("LOCAL_RANK").has_value()) {
      ASSIGN_OR_RETURN(out.local_rank, ReadNumber(get_env, "LOCAL_RANK", 0, kMaxRanks));
      local_rank_is_rank = false;
    }
  } else if (get_env("SLURM_PROCID").has_value()) {
    RETURN_IF_ERROR(ReadPlace(get_env, "SLURM_PROCID", "SLURM_NTASKS", out));
    local_world = "SLURM_NTASKS_PER_NODE";
    if (get_env("SLURM_LOCALID").has_value()) {
      ASSIGN_OR_RETURN(out.local_rank, ReadNumber(get_env, "SLURM_LOCALID", 0, kMaxRanks));
      local_rank_is_rank = false;
    }
  } else if (get_env("LWS_WORKER_INDEX").has_value()) {
    RETURN_IF_ERROR(ReadPlace(get_env, "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", out));
    local_rank_is_rank = false;  // one pod a rank
  } else if (get_env("WORLD_SIZE").has_value()) {
    ASSIGN_OR_RETURN(out.world_size, ReadNumber(get_env, "WORLD_SIZE", 1, kMaxRanks));
    ASSIGN_OR_RETURN(out.rank, Ordinal(*get_env("POD_NAME"), out.world_size));
    local_rank_is_rank = false;
  }
  // Without a local rank the ranks are taken to share a host.
  if (local_rank_is_rank) {
    out.local_rank = out.rank;
    out.local_world_size = out.world_size;
  }
  if (get_env(local_world).has_value()) {
    ASSIGN_OR_RETURN(out.local_world_size, ReadNumber(get_env, local_world, 1, out.world_size));
  }

  if (const auto host = get_env("MASTER_ADDR"); host.has_value() && !host->empty()) {
    out.master_host = *host;
  } else if (const auto leader = get_env("LWS_LEADER_ADDRESS");
             leader.has_value() && !leader->empty()) {
    out.master_host = *leader;
  }
  if (get_env("MASTER_PORT").has_value() || out.world_size > 1) {
    ASSIGN_OR_RETURN(out.master_port,
                     ReadNumber(get_env, "MASTER_PORT", out.world_size > 1 ? 1 : 0, 65535));
  }
  if (const auto secret = get_env("TANDEM_GROUP_SECRET"); secret.has_value() && !secret->empty()) {
    if (secret->size() < kMinSecretBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("TANDEM_GROUP_SECRET: expected at least ", kMinSecretBytes,
                       " characters; `openssl rand -hex 32` makes one"));
    }
    out.group_secret = *secret;
  }
  return out;
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment() {
  return ReadLaunchEnvironment([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

absl::Status CheckGroupSecret(const LaunchEnvironment& environment, bool has_tls) {
  if (!has_tls || environment.world_size == 1 || !environment.group_secret.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "TANDEM_GROUP_SECRET: expected one for ", environment.world_size,
      " ranks with TLS, found none: whoever reaches ", environment.master_host, ":",
      environment.master_port,
      " could join them without a certificate; set it to the same on every rank, `openssl rand "
      "-hex 32` makes one"));
}

}  // namespace tandem::comm
