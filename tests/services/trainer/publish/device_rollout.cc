// device_rollout DEVICE DTYPE FILE: a rollout of the small test model with its arenas on DEVICE.
// Writes its address to FILE; ends with its parent.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "common/rpc/process.h"
#include "common/rpc/server.h"
#include "services/rollout/receive/weight_receiver.h"
#include "services/rollout/receive/weight_service.h"
#include "tests/fakes/device_weight_store.h"
#include "tests/fakes/test_model.h"

namespace tandem {
namespace {

absl::Status Run(const std::string& device, const std::string& dtype, const std::string& file) {
  ASSIGN_OR_RETURN(auto ops, weights::CreateDeviceOps(at::Device(device)));
  testing::DeviceWeightStore store(testing::TestModel::Small(dtype).manifest(), *ops);
  rollout::WeightReceiver receiver(&store);
  rollout::WeightServiceImpl service(&receiver);
  rpc::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.role = "rollout";
  ASSIGN_OR_RETURN(auto server, rpc::Server::Start(options, {&service}));
  RETURN_IF_ERROR(rpc::WriteReadyFile(file, server->address()));
  while (true) pause();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const absl::Status status = tandem::Run(argv[1], argv[2], argv[3]);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
