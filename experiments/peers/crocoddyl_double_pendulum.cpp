// The double pendulum of Crocoddyl's example double_pendulum_fwddyn.py in C++ throughout, for compare_crocoddyl.py.
//
// The example has its cost and its drive in Python, which takes most of the time. Here they are in C++, with the same values and
// derivatives. The program is compiled and started by compare_crocoddyl.py. It reads commands from its input, one a line:
//
//     acceleration q1 q2 v1 v2 u     acceleration of both joints
//     cost FILE                      costs of the first start of a file, rolled out
//     solve FILE COUNT THREADS       solutions from COUNT starts of a file, by FDDP, or by Box-FDDP if torques are limited
//
// and answers each with one line of numbers. A file holds doubles, for each start N controls, then (N + 1) 4 numbers of states.
// `solve` answers seconds, processor seconds of all threads, then for each start iterations, cost, whether converged.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <crocoddyl/core/costs/cost-sum.hpp>
#include <crocoddyl/core/costs/residual.hpp>
#include <crocoddyl/core/integrator/euler.hpp>
#include <crocoddyl/core/residuals/control.hpp>
#include <crocoddyl/core/solvers/box-fddp.hpp>
#include <crocoddyl/core/solvers/fddp.hpp>
#include <crocoddyl/multibody/actions/free-fwddyn.hpp>
#include <crocoddyl/multibody/states/multibody.hpp>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/parsers/urdf.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using Eigen::Ref;
using Eigen::VectorXd;
using std::make_shared;
using std::shared_ptr;

// Crocoddyl wants to know how to copy a model to other kinds of numbers; nobody does so here.
#define COPIED_AS_IT_IS(base, derived)                                                    \
  shared_ptr<base> cloneAsDouble() const override { return make_shared<derived>(*this); } \
  shared_ptr<base> cloneAsFloat() const override { throw std::logic_error("double precision only"); }

// phi / 2 with phi = sum of sin^2 q + (1 - cos q)^2 + 0.1 v^2, that is sum of 1 - cos q + 0.05 v^2.
class Pendulum final : public crocoddyl::CostModelAbstract {
 public:
  Pendulum(shared_ptr<crocoddyl::StateAbstract> state, std::size_t nu) : CostModelAbstractTpl(state, 6, nu) {}
  COPIED_AS_IT_IS(crocoddyl::CostModelBase, Pendulum)

  void calc(const shared_ptr<crocoddyl::CostDataAbstract>& data, const Ref<const VectorXd>& x,
            const Ref<const VectorXd>&) override {
    data->cost = 2.0 - std::cos(x[0]) - std::cos(x[1]) + 0.05 * (x[2] * x[2] + x[3] * x[3]);
  }
  void calc(const shared_ptr<crocoddyl::CostDataAbstract>& data, const Ref<const VectorXd>& x) override {
    calc(data, x, unone_);
  }
  void calcDiff(const shared_ptr<crocoddyl::CostDataAbstract>& data, const Ref<const VectorXd>& x,
                const Ref<const VectorXd>&) override {
    data->Lx << std::sin(x[0]), std::sin(x[1]), 0.1 * x[2], 0.1 * x[3];
    data->Lxx.diagonal() << std::cos(x[0]), std::cos(x[1]), 0.1, 0.1;
  }
  void calcDiff(const shared_ptr<crocoddyl::CostDataAbstract>& data, const Ref<const VectorXd>& x) override {
    calcDiff(data, x, unone_);
  }
};

// A torque on the first joint.
class FirstJoint final : public crocoddyl::ActuationModelAbstract {
 public:
  explicit FirstJoint(shared_ptr<crocoddyl::StateAbstract> state) : ActuationModelAbstractTpl(state, 1) {}
  COPIED_AS_IT_IS(crocoddyl::ActuationModelBase, FirstJoint)

  void calc(const shared_ptr<crocoddyl::ActuationDataAbstract>& data, const Ref<const VectorXd>&,
            const Ref<const VectorXd>& u) override {
    data->tau[0] = u[0];
  }
  void calcDiff(const shared_ptr<crocoddyl::ActuationDataAbstract>&, const Ref<const VectorXd>&,
                const Ref<const VectorXd>&) override {}
  void commands(const shared_ptr<crocoddyl::ActuationDataAbstract>& data, const Ref<const VectorXd>&,
                const Ref<const VectorXd>& tau) override {
    data->u[0] = tau[0];
  }
  shared_ptr<crocoddyl::ActuationDataAbstract> createData() override {
    auto data = make_shared<crocoddyl::ActuationDataAbstract>(this);
    data->dtau_du(0, 0) = 1.0;
    data->Mtau(0, 0) = 1.0;
    return data;
  }
};

struct Settings {
  pinocchio::Model model;
  VectorXd initial;
  std::size_t steps;
  double dt, control_weight, state_weight, final_weight, tolerance;
  std::size_t iterations;
  double limit;  // largest torque, infinite for none
};

shared_ptr<crocoddyl::ShootingProblem> problem_of(const Settings& s) {
  auto state = make_shared<crocoddyl::StateMultibody>(make_shared<pinocchio::Model>(s.model));
  auto drive = make_shared<FirstJoint>(state);
  auto pendulum = make_shared<Pendulum>(state, 1);
  auto control = make_shared<crocoddyl::CostModelResidual>(state, make_shared<crocoddyl::ResidualModelControl>(state, 1));
  auto running = make_shared<crocoddyl::CostModelSum>(state, 1), final = make_shared<crocoddyl::CostModelSum>(state, 1);
  running->addCost("control", control, s.control_weight);
  running->addCost("state", pendulum, s.state_weight);
  final->addCost("state", pendulum, s.final_weight);
  auto step = [&](shared_ptr<crocoddyl::CostModelSum> costs) {
    auto rate = make_shared<crocoddyl::DifferentialActionModelFreeFwdDynamics>(state, drive, costs);
    auto model = make_shared<crocoddyl::IntegratedActionModelEuler>(rate, s.dt);
    if (std::isfinite(s.limit)) {
      model->set_u_lb(VectorXd::Constant(1, -s.limit));
      model->set_u_ub(VectorXd::Constant(1, s.limit));
    }
    return model;
  };
  std::vector<shared_ptr<crocoddyl::ActionModelAbstract>> steps(s.steps, step(running));
  return make_shared<crocoddyl::ShootingProblem>(s.initial, steps, step(final));
}

struct Start {
  std::vector<VectorXd> xs, us;
};

std::vector<Start> read(const std::string& path, std::size_t N) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Start> starts;
  std::vector<double> row(N + 4 * (N + 1));
  while (file.read(reinterpret_cast<char*>(row.data()), row.size() * sizeof(double))) {
    Start start;
    for (std::size_t k = 0; k < N; ++k) start.us.push_back(VectorXd::Constant(1, row[k]));
    for (std::size_t k = 0; k <= N; ++k) start.xs.push_back(Eigen::Map<Eigen::Vector4d>(row.data() + N + 4 * k));
    starts.push_back(start);
  }
  return starts;
}

struct Found {
  double iterations, cost, converged;
};

int main(int, char** argv) {
  Settings s;
  pinocchio::urdf::buildModel(argv[1], s.model);
  s.initial = Eigen::Vector4d(std::stod(argv[2]), std::stod(argv[3]), 0.0, 0.0);
  s.steps = std::stoul(argv[4]);
  s.dt = std::stod(argv[5]);
  s.control_weight = std::stod(argv[6]);
  s.state_weight = std::stod(argv[7]);
  s.final_weight = std::stod(argv[8]);
  s.tolerance = std::stod(argv[9]);
  s.iterations = std::stoul(argv[10]);
  s.limit = std::stod(argv[11]);

  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command, path;
    words >> command;
    if (command == "acceleration") {
      Eigen::Vector2d q, v, tau(0.0, 0.0);
      words >> q[0] >> q[1] >> v[0] >> v[1] >> tau[0];
      pinocchio::Data data(s.model);
      const VectorXd a = pinocchio::aba(s.model, data, q, v, tau);
      std::printf("%.17g %.17g\n", a[0], a[1]);
    } else if (command == "cost") {
      words >> path;
      auto problem = problem_of(s);
      const Start start = read(path, s.steps).at(0);
      std::printf("%.17g\n", problem->calc(problem->rollout_us(start.us), start.us));
    } else {
      std::size_t count, threads;
      words >> path >> count >> threads;
      const auto starts = read(path, s.steps);
      std::vector<Found> found(count);
      // Each thread has its own solver, made before time runs.
      std::vector<shared_ptr<crocoddyl::SolverFDDP>> solvers;
      for (std::size_t t = 0; t < threads; ++t) {
        if (std::isfinite(s.limit)) solvers.push_back(make_shared<crocoddyl::SolverBoxFDDP>(problem_of(s)));
        else solvers.push_back(make_shared<crocoddyl::SolverFDDP>(problem_of(s)));
        solvers[t]->set_th_stop(s.tolerance);
      }
      auto work = [&](std::size_t t) {
        for (std::size_t k = t; k < count; k += threads) {
          const bool converged = solvers[t]->solve(starts[k].xs, starts[k].us, s.iterations, false);
          found[k] = {double(std::min(solvers[t]->get_iter() + 1, s.iterations)), solvers[t]->get_cost(), double(converged)};
        }
      };
      const std::clock_t processor = std::clock();
      const auto begin = std::chrono::steady_clock::now();
      std::vector<std::thread> others;
      for (std::size_t t = 1; t < threads; ++t) others.emplace_back(work, t);
      work(0);
      for (auto& other : others) other.join();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      std::printf("%.17g %.17g", taken.count(), double(std::clock() - processor) / CLOCKS_PER_SEC);
      for (const auto& f : found) std::printf(" %.17g %.17g %.17g", f.iterations, f.cost, f.converged);
      std::printf("\n");
    }
    std::fflush(stdout);
  }
}
