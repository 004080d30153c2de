// EncodingMetrics: what the rollouts' vision towers did between two steps of a run.
//
//   EncodingMetrics encoding;
//   encoding.Begin(fleet->GetServerInfos());
//   encoding.Add(fleet->GetServerInfos(), metrics);   // after each step
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_ENCODING_METRICS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_ENCODING_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// One thread.
class EncodingMetrics {
 public:
  // What replicas say of themselves. One that does not answer is left out: a later call has its counts.
  using Infos = std::vector<rollout::v1::GetServerInfoResponse>;

  // Counts what comes after these.
  void Begin(const Infos& infos);

  // Adds rollout/encoded_images, rollout/encoded_image_patches and rollout/encode_images_s: the replicas'
  // sums since the last call. A process that joins later counts from its start.
  void Add(const Infos& infos, Metrics& metrics);

 private:
  struct Counts {
    int64_t num_images = 0;
    int64_t num_patches = 0;
    double seconds = 0;
  };
  static Counts CountsOf(const rollout::v1::GetServerInfoResponse& info);

  std::map<std::string, Counts> last_;  // by instance_id
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_ENCODING_METRICS_H_
