// Whole updates between processes whose weights lie on UPDATE_DEVICE: the CPU, or one GPU that all
// of them use, each as a host of its own to NCCL.
#include <cstdlib>

#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "common/weights/tensor_digests.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/cuda_device.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::FakeTrainer;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestModel;

const std::string kDevice = UPDATE_DEVICE;

struct Case {
  std::string backend;
  std::string transport;
  std::string dtype;
};

// In a process of its own.
class Rollout {
 public:
  static absl::StatusOr<std::unique_ptr<Rollout>> Start(const TempFolder& folder, int number,
                                                        const Case& how) {
    std::unique_ptr<Rollout> out(new Rollout);
    const std::string ready = folder / ("ready" + std::to_string(number));
    rpc::ChildProcessOptions options;
    options.name = "rollout " + std::to_string(number);
    options.argv = {DEVICE_ROLLOUT, kDevice, how.dtype, ready};
    options.environment = {{"NCCL_HOSTID", options.name}};
    ASSIGN_OR_RETURN(out->process_, rpc::ChildProcess::Start(std::move(options)));
    ASSIGN_OR_RETURN(out->address_,
                     rpc::WaitForReadyFile(ready, *out->process_, absl::Seconds(60)));
    return out;
  }
  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<rpc::ChildProcess> process_;
  std::string address_;
};

std::string DigestOf(const TestModel& model) {
  std::vector<weights::DigestSum> sums;
  const auto manifest = model.manifest();
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    const std::string bytes = model.Bytes(i);
    sums.push_back(weights::SumOfHeld(
        manifest.tensors(i), {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}));
  }
  return weights::ModelDigest(weights::MakeTensorDigests(manifest, sums));
}

class DeviceUpdate : public ::testing::TestWithParam<Case> {};

// Twice over the same groups, once more after the groups have been made anew.
TEST_P(DeviceUpdate, EveryReplicaHasTheModelsDigest) {
  const Case how = GetParam();
  if (kDevice != "cpu") TANDEM_SKIP_WITHOUT_CUDA();
  setenv("NCCL_HOSTID", "trainer", 1);
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto one, Rollout::Start(folder, 1, how));
  ASSERT_OK_AND_ASSIGN(auto two, Rollout::Start(folder, 2, how));
  ASSERT_OK_AND_ASSIGN(auto ops, weights::CreateDeviceOps(at::Device(kDevice)));
  TestModel model = TestModel::Small(how.dtype);
  ASSERT_OK_AND_ASSIGN(auto trainer, FakeTrainer::Create(model, {.ranks = 1,
                                                                 .bucket_bytes = 104,
                                                                 .backend = how.backend,
                                                                 .transport = how.transport,
                                                                 .device = ops.get()}));
  std::vector<ReplicaEndpoint> replicas = {{"one", {one->address()}}, {"two", {two->address()}}};
  for (int version = 1; version <= 3; ++version) {
    if (version == 3) replicas.pop_back();  // another set of replicas is another group
    model.offset = version;
    trainer->SetWeights(model);
    ASSERT_OK_AND_ASSIGN(const PublishReport report,
                         trainer->Publish(version, replicas, absl::Seconds(60)));
    EXPECT_EQ(report.model_digest, DigestOf(model));
    for (const auto& replica : report.replicas) EXPECT_TRUE(replica.committed) << replica.error;
  }
}

std::vector<Case> Cases() {
  const std::vector<std::string> backends = kDevice == "cpu"
                                                ? std::vector<std::string>{"shared_memory"}
                                                : std::vector<std::string>{"nccl", "cuda_ipc"};
  std::vector<Case> cases;
  for (const std::string& backend : backends) {
    for (const char* transport : {"broadcast", "reshard", "delta"}) {
      for (const char* dtype : {"float32", "bfloat16"}) {
        cases.push_back({backend, transport, dtype});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, DeviceUpdate, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return info.param.backend + "_" + info.param.transport + "_" + info.param.dtype;
});

}  // namespace
}  // namespace tandem::trainer
