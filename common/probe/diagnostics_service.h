// DiagnosticsService, for every process of a fleet. Functions supply what differs between
// processes.
//
//   DiagnosticsServiceImpl diagnostics({.busy = CheckIdle});
//   options.on_drain = [&] { diagnostics.Shutdown(); };
//   ASSIGN_OR_RETURN(auto server, rpc::Server::Start(options, {&diagnostics}));
#ifndef TANDEM_COMMON_PROBE_DIAGNOSTICS_SERVICE_H_
#define TANDEM_COMMON_PROBE_DIAGNOSTICS_SERVICE_H_

#include <functional>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "tandem/diagnostics/v1/diagnostics_service.grpc.pb.h"

namespace tandem::probe {

// The response of a single-process service: its report as rank `rank`.
diagnostics::v1::CheckReachResponse ReachFromHere(const diagnostics::v1::CheckReachRequest& request,
                                                  int rank, bool has_nccl);

// The timeout for each address.
absl::Duration ReachTimeout(const diagnostics::v1::CheckReachRequest& request);

// Thread-safe; outlives the server. Each call runs on a thread of its own.
class DiagnosticsServiceImpl final : public diagnostics::v1::DiagnosticsService::CallbackService {
 public:
  struct Options {
    int rank = 0;  // within its service
    // OK if the process is idle; else FAILED_PRECONDITION with what it is doing. Thread-safe.
    std::function<absl::Status()> busy;
    // Replace the single-process implementations; null: the process is alone. Both may block until
    // the deadline.
    std::function<diagnostics::v1::CheckReachResponse(const diagnostics::v1::CheckReachRequest&)>
        check_reach;
    std::function<absl::StatusOr<diagnostics::v1::ProbeResults>(
        const diagnostics::v1::ProbeGroupRequest&, absl::Time deadline,
        const std::shared_ptr<absl::Notification>& cancel)>
        probe_group;
  };

  explicit DiagnosticsServiceImpl(Options options) : options_(std::move(options)) {}
  // Waits for calls in flight.
  ~DiagnosticsServiceImpl() override;

  grpc::ServerUnaryReactor* CheckReach(grpc::CallbackServerContext* context,
                                       const diagnostics::v1::CheckReachRequest* request,
                                       diagnostics::v1::CheckReachResponse* response) override;
  grpc::ServerWriteReactor<diagnostics::v1::ProbeGroupResponse>* ProbeGroup(
      grpc::CallbackServerContext* context,
      const diagnostics::v1::ProbeGroupRequest* request) override;

  // Ends running probes, and refuses new calls with UNAVAILABLE.
  void Shutdown();

 private:
  class ProbeCall;

  absl::Status EnterReach();
  void LeaveReach();
  absl::Status EnterProbe(const diagnostics::v1::ProbeGroupRequest& request, ProbeCall* call);
  void LeaveProbe();
  absl::StatusOr<diagnostics::v1::ProbeResults> Probe(
      const diagnostics::v1::ProbeGroupRequest& request, absl::Time deadline,
      const std::shared_ptr<absl::Notification>& cancel) const;

  const Options options_;
  absl::Mutex mu_;
  int num_reaches_ ABSL_GUARDED_BY(mu_) = 0;
  bool probes_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<absl::Notification> cancel_ ABSL_GUARDED_BY(mu_);  // of the probe under way
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tandem::probe

#endif  // TANDEM_COMMON_PROBE_DIAGNOSTICS_SERVICE_H_
