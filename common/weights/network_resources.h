// NetworkResources: the resources that an update's transfers occupy, each with the time at which it
// becomes free and its total busy time. Internal to the network model (network_model.h).
#ifndef TANDEM_COMMON_WEIGHTS_NETWORK_RESOURCES_H_
#define TANDEM_COMMON_WEIGHTS_NETWORK_RESOURCES_H_

#include <array>
#include <string>
#include <vector>

#include "common/weights/network_model.h"

namespace tandem::weights {

class NetworkResources {
 public:
  NetworkResources(const Network& network, int trainer_ranks, int rollout_ranks);

  // Starts when `ready` has come and the resources are free. Returns the end time.
  double Pack(int rank, double ready, double seconds);
  double Unpack(int rank, double ready, double seconds);
  double Send(int from, int to, double ready, double bytes);
  // Counts bytes that are sent but not simulated.
  void CountBytes(int from, int to, double bytes);

  int HostOf(int rank) const;

  // The resource with the longest busy time.
  struct Busiest {
    std::string name;
    double seconds = 0;
  };
  Busiest FindBusiest() const;
  // Core time of the busiest host divided by its cores; 0 if cores are not counted.
  double CoreSeconds() const;
  NicBytes TrainerNicsOut() const { return Summary(kNicOut, 0, trainer_hosts_); }
  NicBytes RolloutNicsIn() const { return Summary(kNicIn, rollout_host_, num_hosts_); }

 private:
  enum Kind { kPack, kUnpack, kLocalOut, kLocalIn, kNicOut, kNicIn, kNumKinds };
  struct Use {
    double free = 0;
    double busy = 0;
    double bytes = 0;
  };

  // A resource that a transfer occupies.
  struct Part {
    Kind kind;
    int index;
    double rate;
  };
  struct Route {
    std::array<Part, 3> parts;
    int size = 0;
  };
  Route RouteOf(int from, int to) const;
  // The NIC of a host's local rank, as an index over all hosts.
  int NicOf(int host, int rank) const;
  int LocalRank(int rank) const;
  double Occupy(Kind kind, int index, double ready, double seconds);
  NicBytes Summary(Kind kind, int first_host, int last_host) const;

  const Network network_;
  const int trainer_ranks_;
  int trainer_hosts_ = 0;
  int rollout_host_ = 0;  // the rollout's first host
  int num_hosts_ = 0;
  std::array<std::vector<Use>, kNumKinds> uses_;
  std::vector<double> core_seconds_;  // by host
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_NETWORK_RESOURCES_H_
