#include "common/weights/network_resources.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tandem::weights {

NetworkResources::NetworkResources(const Network& network, int trainer_ranks, int rollout_ranks)
    : network_(network), trainer_ranks_(trainer_ranks) {
  const auto hosts = [&](int ranks) {
    return (ranks + network.ranks_per_host - 1) / network.ranks_per_host;
  };
  trainer_hosts_ = network.one_host ? 1 : hosts(trainer_ranks);
  rollout_host_ = network.one_host ? 0 : trainer_hosts_;
  num_hosts_ = network.one_host ? 1 : trainer_hosts_ + hosts(rollout_ranks);
  const size_t ranks = static_cast<size_t>(trainer_ranks) + rollout_ranks;
  for (const Kind kind : {kPack, kUnpack, kLocalOut, kLocalIn}) uses_[kind].resize(ranks);
  const size_t nics = static_cast<size_t>(num_hosts_) * network.nics_per_host;
  for (const Kind kind : {kNicOut, kNicIn}) uses_[kind].resize(nics);
  core_seconds_.resize(num_hosts_);
}

int NetworkResources::HostOf(int rank) const {
  if (network_.one_host) return 0;
  if (rank < trainer_ranks_) return rank / network_.ranks_per_host;
  return rollout_host_ + (rank - trainer_ranks_) / network_.ranks_per_host;
}

int NetworkResources::LocalRank(int rank) const {
  if (network_.one_host) return rank;
  return (rank < trainer_ranks_ ? rank : rank - trainer_ranks_) % network_.ranks_per_host;
}

int NetworkResources::NicOf(int host, int rank) const {
  const int nic = LocalRank(rank) * network_.nics_per_host / network_.ranks_per_host;
  return host * network_.nics_per_host + nic;
}

double NetworkResources::Occupy(Kind kind, int index, double ready, double seconds) {
  Use& use = uses_[kind][index];
  use.free = std::max(use.free, ready) + seconds;
  use.busy += seconds;
  return use.free;
}

double NetworkResources::Pack(int rank, double ready, double seconds) {
  core_seconds_[HostOf(rank)] += seconds;
  return Occupy(kPack, rank, ready, seconds);
}

double NetworkResources::Unpack(int rank, double ready, double seconds) {
  core_seconds_[HostOf(rank)] += seconds;
  return Occupy(kUnpack, rank, ready, seconds);
}

NetworkResources::Route NetworkResources::RouteOf(int from, int to) const {
  Route route;
  const auto add = [&](Kind kind, int index, double rate) {
    route.parts[route.size++] = {kind, index, rate};
  };
  const int from_host = HostOf(from);
  const int to_host = HostOf(to);
  if (from_host == to_host) {
    add(kLocalOut, from, network_.local);
    add(kLocalIn, to, network_.local);
    // If cores are counted, the receiver copies on the thread that unpacks.
    if (network_.cores_per_host > 0) add(kUnpack, to, network_.local);
    return route;
  }
  const int in = NicOf(to_host, to);
  int out = NicOf(from_host, from);
  if (network_.rails) {
    const int rail = from_host * network_.nics_per_host + in % network_.nics_per_host;
    if (rail != out) add(kLocalOut, from, network_.local);
    out = rail;
  }
  add(kNicOut, out, network_.nic);
  add(kNicIn, in, network_.nic);
  return route;
}

double NetworkResources::Send(int from, int to, double ready, double bytes) {
  const Route route = RouteOf(from, to);
  double start = ready;
  double seconds = 0;
  for (int i = 0; i < route.size; ++i) {
    const Part& part = route.parts[i];
    start = std::max(start, uses_[part.kind][part.index].free);
    seconds = std::max(seconds, bytes / part.rate);
  }
  for (int i = 0; i < route.size; ++i) {
    const Part& part = route.parts[i];
    Use& use = uses_[part.kind][part.index];
    use.free = start + bytes / part.rate;
    use.busy += bytes / part.rate;
    use.bytes += bytes;
  }
  if (HostOf(from) == HostOf(to)) core_seconds_[HostOf(from)] += bytes / network_.local;
  return start + seconds;
}

void NetworkResources::CountBytes(int from, int to, double bytes) {
  const Route route = RouteOf(from, to);
  for (int i = 0; i < route.size; ++i) {
    uses_[route.parts[i].kind][route.parts[i].index].bytes += bytes;
  }
}

NetworkResources::Busiest NetworkResources::FindBusiest() const {
  static constexpr std::array<const char*, kNumKinds> kNames = {
      "packing on rank ",    "unpacking on rank ", "local link out of rank ",
      "local link to rank ", "NIC out of host ",   "NIC into host "};
  Busiest busiest;
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    for (size_t i = 0; i < uses_[kind].size(); ++i) {
      if (uses_[kind][i].busy <= busiest.seconds) continue;
      busiest.seconds = uses_[kind][i].busy;
      const bool nic = kind == kNicOut || kind == kNicIn;
      const size_t nics = network_.nics_per_host;
      busiest.name = nic ? absl::StrCat(kNames[kind], i / nics, " (number ", i % nics, ")")
                         : absl::StrCat(kNames[kind], i);
    }
  }
  return busiest;
}

double NetworkResources::CoreSeconds() const {
  if (network_.cores_per_host == 0) return 0;
  return *std::max_element(core_seconds_.begin(), core_seconds_.end()) / network_.cores_per_host;
}

NicBytes NetworkResources::Summary(Kind kind, int first_host, int last_host) const {
  NicBytes out;
  const size_t begin = static_cast<size_t>(first_host) * network_.nics_per_host;
  const size_t end = static_cast<size_t>(last_host) * network_.nics_per_host;
  for (size_t i = begin; i < end; ++i) {
    out.max = std::max(out.max, uses_[kind][i].bytes);
    out.mean += uses_[kind][i].bytes / static_cast<double>(end - begin);
  }
  return out;
}

}  // namespace tandem::weights
