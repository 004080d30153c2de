#include "common/weights/network_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/count.h"
#include "common/weights/network_resources.h"

namespace tandem::weights {
namespace {

constexpr int64_t kMostSteps = 20'000'000;  // messages times hops that are simulated
constexpr double kGiga = 1e9;

// Encoding of a message's bytes on the wire.
struct Wire {
  double bytes_ratio = 1;  // encoded to raw
  double pack = 0;         // raw bytes per second
  double unpack = 0;       // encoded bytes per second
};

// The two buckets of a rank in one direction: when the one that is next is free.
class Buckets {
 public:
  double next_free() const { return free_[next_]; }
  void Use(double until) {
    free_[next_] = until;
    next_ = (next_ + 1) % kBucketsInFlight;
  }

 private:
  std::array<double, kBucketsInFlight> free_ = {};
  int next_ = 0;
};

// Replicas of the chain that follow one another and are split alike, and the plan that feeds the
// first of them, from ranks `first_sender` onwards.
struct Stretch {
  const ReshardPlan* plan = nullptr;
  int first_sender = 0;
  std::vector<int> first_ranks;  // of each replica
};

std::vector<Stretch> StretchesOf(const FleetPlan& fleet) {
  std::vector<int> first(fleet.replica_ranks.size());
  std::exclusive_scan(fleet.replica_ranks.begin(), fleet.replica_ranks.end(), first.begin(),
                      fleet.trainer_ranks);
  std::vector<Stretch> out = {{fleet.feed.get(), 0, {first[fleet.chain[0]]}}};
  for (const ChainLink& link : fleet.links) {
    if (link.plan != nullptr) out.push_back({link.plan.get(), first[link.from_replica], {}});
    out.back().first_ranks.push_back(first[link.to_replica]);
  }
  return out;
}

// Answers when the last replica has everything, where the senders have it at `start`.
double Simulate(const Stretch& stretch, const Wire& wire, double latency, double start,
                NetworkResources& resources) {
  const ReshardPlan& plan = *stretch.plan;
  const auto hops = static_cast<int64_t>(stretch.first_ranks.size());
  const auto messages = std::max<int64_t>(1, static_cast<int64_t>(plan.messages.size()));
  const int64_t simulated = std::min(hops, std::max<int64_t>(2, kMostSteps / messages));
  std::vector<Buckets> sending(plan.num_senders());
  std::vector<Buckets> receiving(simulated * plan.num_receivers());
  std::vector<double> complete(simulated, start);  // by hop
  for (const Message& message : plan.messages) {
    const auto dense = static_cast<double>(message.size_bytes);
    const double bytes = dense * wire.bytes_ratio;
    Buckets& sender = sending[message.from];
    int from = stretch.first_sender + message.from;
    double ready = resources.Pack(from, std::max(start, sender.next_free()), dense / wire.pack);
    double unpacked = 0;  // at the hop before
    for (int64_t hop = 0; hop < simulated; ++hop) {
      const int to = stretch.first_ranks[hop] + message.to;
      Buckets& receiver = receiving[hop * plan.num_receivers() + message.to];
      const double arrived =
          resources.Send(from, to, std::max(ready, receiver.next_free()), bytes) + latency;
      (hop == 0 ? sender : receiving[(hop - 1) * plan.num_receivers() + message.to])
          .Use(std::max(arrived, unpacked));
      unpacked = resources.Unpack(to, arrived, bytes / wire.unpack);
      complete[hop] = std::max(complete[hop], unpacked);
      ready = arrived;
      from = to;
    }
    receiving[(simulated - 1) * plan.num_receivers() + message.to].Use(unpacked);
  }
  for (int64_t hop = simulated; hop < hops; ++hop) {
    for (int rank = 0; rank < plan.num_receivers(); ++rank) {
      resources.CountBytes(stretch.first_ranks[hop - 1] + rank, stretch.first_ranks[hop] + rank,
                           static_cast<double>(plan.received_bytes[rank]) * wire.bytes_ratio);
    }
  }
  const int64_t before = simulated / 2;
  const double pace = simulated < 2 ? 0
                                    : (complete[simulated - 1] - complete[before - 1]) /
                                          static_cast<double>(simulated - before);
  return complete[simulated - 1] + pace * static_cast<double>(hops - simulated);
}

int RolloutRanks(const FleetPlan& fleet) { return fleet.num_ranks() - fleet.trainer_ranks; }

// The longer of what was simulated and what the cores can do, with what every update takes.
void Finish(const Network& network, double seconds, double core_seconds, Prediction& out) {
  if (core_seconds > seconds) {
    out.busy_seconds = core_seconds;
    out.critical_path = absl::StrFormat("copies on %s: %.4g s",
                                        text::Count(network.cores_per_host, "core"), core_seconds);
  }
  out.seconds = std::max(seconds, core_seconds) + network.fixed;
  if (network.fixed > 0) {
    absl::StrAppendFormat(&out.critical_path, ", then %.4g s of calls", network.fixed);
  }
}

Prediction PredictPlan(const FleetPlan& fleet, const Network& network, const Wire& wire) {
  NetworkResources resources(network, fleet.trainer_ranks, RolloutRanks(fleet));
  const std::vector<Stretch> stretches = StretchesOf(fleet);
  double seconds = 0;
  for (const Stretch& stretch : stretches) {
    seconds = Simulate(stretch, wire, network.latency, seconds, resources);
  }
  // Only the last replica's exchange adds time; earlier replicas exchange during later transfers.
  const double fed = seconds;
  int first = fleet.trainer_ranks;
  for (const int ranks : fleet.replica_ranks) {
    const Stretch exchange = {fleet.exchanges.at(ranks).get(), first, {first}};
    seconds = std::max(seconds, Simulate(exchange, wire, network.latency, fed, resources));
    first += ranks;
  }
  Prediction out;
  const NetworkResources::Busiest busiest = resources.FindBusiest();
  out.busy_seconds = busiest.seconds;
  out.critical_path = absl::StrFormat(
      "%s: %.4g s; latency and the chain of %s: %.4g s", busiest.name, busiest.seconds,
      text::Count(fleet.chain.size(), "replica"), std::max(0.0, seconds - busiest.seconds));
  out.trainer_nics = resources.TrainerNicsOut();
  out.rollout_nics = resources.RolloutNicsIn();
  Finish(network, seconds, resources.CoreSeconds(), out);
  return out;
}

}  // namespace

Network MeasuredHost(int cores, double local, double pack, double unpack, double fixed) {
  Network network;
  network.one_host = true;
  network.cores_per_host = cores;
  network.local = network.nic = local;
  network.pack = pack;
  network.unpack = unpack;
  network.fixed = fixed;
  return network;
}

Prediction PredictReshard(const FleetPlan& fleet, const Network& network) {
  return PredictPlan(fleet, network, {1, network.pack, network.unpack});
}

Prediction PredictDelta(const FleetPlan& fleet, const Network& network, const DeltaCost& cost) {
  const double ratio = cost.density * cost.bytes_per_changed /
                       static_cast<double>(std::max<int64_t>(1, fleet.feed->element_bytes));
  return PredictPlan(fleet, network, {std::min(1.0, ratio), cost.encode, cost.decode});
}

namespace {

// What the ranks of a fleet hold of a model of `all` bytes.
struct RankBytes {
  double common = 0;   // bytes that all ranks hold
  double largest = 0;  // bytes of the rank that holds most
  double total = 0;    // of all ranks
  int smallest = 0;    // ranks of the smallest replica
  int num_sizes = 0;
  int replicas = 0;  // at most, of one size
};

RankBytes RankBytesOf(const FleetPlan& fleet, double all) {
  std::map<int, const ReshardPlan*> plans;  // by size, the one that feeds the replica
  plans[fleet.replica_ranks[fleet.chain[0]]] = fleet.feed.get();
  for (const ChainLink& link : fleet.links) {
    if (link.plan != nullptr) plans[fleet.replica_ranks[link.to_replica]] = link.plan.get();
  }
  RankBytes out;
  out.common = all;
  out.smallest = plans.begin()->first;
  out.num_sizes = static_cast<int>(plans.size());
  for (const auto& [size, plan] : plans) {
    const auto replicas =
        static_cast<int>(std::count(fleet.replica_ranks.begin(), fleet.replica_ranks.end(), size));
    const ReshardPlan& exchange = *fleet.exchanges.at(size);
    double total = 0;
    for (int rank = 0; rank < size; ++rank) {
      double held = static_cast<double>(plan->received_bytes[rank]);
      if (!exchange.messages.empty()) held += static_cast<double>(exchange.received_bytes[rank]);
      out.largest = std::max(out.largest, held);
      total += held;
    }
    if (size > 1) out.common = std::min(out.common, std::max(0.0, (total - all) / (size - 1)));
    out.total += total * replicas;
    out.replicas = std::max(out.replicas, replicas);
  }
  return out;
}

}  // namespace

Prediction PredictBroadcast(const FleetPlan& fleet, const Network& network, int64_t model_bytes,
                            int64_t bucket_bytes) {
  const auto all = static_cast<double>(model_bytes);
  const auto bucket = static_cast<double>(std::min(bucket_bytes, model_bytes));
  const double buckets = std::ceil(all / bucket);
  const double trainers = fleet.trainer_ranks;
  const double beside =
      network.one_host ? trainers : std::min<double>(trainers, network.ranks_per_host);
  const double rollouts = RolloutRanks(fleet);
  const bool crosses = !network.one_host;  // the rollouts are on other hosts
  const double collective =
      crosses ? std::min(network.local, network.nic * network.collective_nics) : network.local;
  const double to_one = crosses ? std::min(network.local, network.nic) : network.local;
  const RankBytes shares = RankBytesOf(fleet, all);
  const double parts = all - shares.common;            // of a replica
  const double sent_parts = parts * shares.num_sizes;  // by the leader

  // The leader already holds its own part.
  const double local_part = (beside - 1) / trainers;
  const double remote_part = (trainers - beside) / trainers;
  struct Stage {
    const char* name;
    double seconds;
  };
  const double of_bucket = bucket / all;
  const std::array<Stage, 4> stages = {{
      {"gather to the leader",
       std::max(bucket * remote_part / network.nic, bucket * local_part / network.local)},
      {"packing on the leader", bucket / network.pack},
      {"broadcast", of_bucket * (shares.common / collective + sent_parts / to_one)},
      {"unpacking", of_bucket * shares.largest / network.unpack},
  }};
  const Stage slowest =
      *std::max_element(stages.begin(), stages.end(),
                        [](const Stage& a, const Stage& b) { return a.seconds < b.seconds; });
  double fill = network.latency * 2;
  for (const Stage& stage : stages) fill += stage.seconds;
  if (shares.common > 0) {
    fill += rollouts * (network.collective_chunk_bytes / collective + network.latency);
  }
  if (parts > 0) {
    const double hop = of_bucket * (shares.largest - shares.common) / to_one + network.latency;
    fill += (shares.replicas - 1) * hop;
  }
  const double seconds = fill + (buckets - 1) * slowest.seconds;

  Prediction out;
  out.busy_seconds = buckets * slowest.seconds;
  out.critical_path = absl::StrFormat(
      "%s: %.4g s; latency and the chain of %s: %.4g s", slowest.name, out.busy_seconds,
      text::Count(static_cast<int64_t>(rollouts), "rank"), seconds - out.busy_seconds);
  if (crosses) {
    const double share = shares.common / network.collective_nics;
    const double trainer_hosts = std::ceil(trainers / network.ranks_per_host);
    // The leader's host sends the model, the others their shards.
    const double ranks_of_nic = static_cast<double>(network.ranks_per_host) / network.nics_per_host;
    out.trainer_nics.max =
        std::max(share + sent_parts, remote_part > 0 ? all / trainers * ranks_of_nic : 0);
    out.trainer_nics.mean =
        (shares.common + sent_parts + all * remote_part) / (trainer_hosts * network.nics_per_host);
    // Into a host come the parts of one replica, or of as many of its ranks as are there; further
    // replicas of the host are fed by the first.
    const double ranks_of_host = std::min(shares.smallest, network.ranks_per_host);
    const double part = shares.largest - shares.common;
    const double most_of_nic = std::ceil(ranks_of_host / network.nics_per_host);
    out.rollout_nics = {
        share + part * most_of_nic,
        (shares.common + parts * ranks_of_host / shares.smallest) / network.nics_per_host};
  }
  const double copies = (all * local_part + (crosses ? 0 : shares.total)) / network.local +
                        all / network.pack + (crosses ? 0 : shares.total / network.unpack);
  Finish(network, seconds, network.cores_per_host == 0 ? 0 : copies / network.cores_per_host, out);
  return out;
}

}  // namespace tandem::weights
