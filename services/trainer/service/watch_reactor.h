// One Watch call: the current state, then every change. A slow reader may miss intermediate states,
// never the last one.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_WATCH_REACTOR_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_WATCH_REACTOR_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/trainer/service/trainer_status.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"

namespace tandem::trainer {

// Owns itself: deleted when gRPC is done with the call.
class WatchReactor final : public grpc::ServerWriteReactor<v1::WatchResponse> {
 public:
  explicit WatchReactor(TrainerStatus& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void OnChange(const v1::WatchResponse& response, const absl::Status* end);
  // Writes the waiting state, or finishes, unless a write is in progress.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  TrainerStatus& status_;
  int64_t subscription_ = -1;
  absl::Mutex mu_;
  v1::WatchResponse writing_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::WatchResponse> waiting_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  bool is_writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_WATCH_REACTOR_H_
