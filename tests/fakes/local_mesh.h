// LocalMesh: a device mesh whose ranks are threads of one process.
//
//   LocalMesh world({.dp_replicate = 2, .dp_shard = 2});
//   world.Run([](const comm::DeviceMesh& mesh) { ...; });   // on a thread for each rank
#ifndef TANDEM_TESTS_FAKES_LOCAL_MESH_H_
#define TANDEM_TESTS_FAKES_LOCAL_MESH_H_

#include <ATen/Parallel.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/comm/device_mesh.h"
#include "tests/fakes/local_process_group.h"

namespace tandem::testing {

class LocalMesh {
 public:
  // What a test puts around a group of this rank, or the group itself.
  using Wrap = std::function<std::unique_ptr<comm::ProcessGroup>(
      const std::string& name, std::unique_ptr<comm::ProcessGroup>)>;

  explicit LocalMesh(const comm::MeshShape& shape, Wrap wrap = nullptr)
      : shape_(shape), wrap_(std::move(wrap)) {}

  // Calls `body` for every rank at once, each on a thread of its own; returns when all have.
  void Run(const std::function<void(const comm::DeviceMesh&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < shape_.size(); ++rank) {
      threads.emplace_back([this, rank, &body] {
        at::set_num_threads(1);
        const auto mesh = comm::DeviceMesh::Create(
            shape_, rank, [this](const std::string& name, int rank_within, int size) {
              std::unique_ptr<comm::ProcessGroup> group = World(name, size).Join(rank_within);
              return wrap_ == nullptr ? std::move(group) : wrap_(name, std::move(group));
            });
        body(**mesh);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  LocalWorld& World(const std::string& name, int size) {
    absl::MutexLock lock(&mu_);
    std::unique_ptr<LocalWorld>& world = worlds_[name];
    if (world == nullptr) world = std::make_unique<LocalWorld>(size);
    return *world;
  }

  const comm::MeshShape shape_;
  const Wrap wrap_;
  absl::Mutex mu_;
  std::map<std::string, std::unique_ptr<LocalWorld>> worlds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_LOCAL_MESH_H_
