# @summary Shares the NVIDIA GPUs of an HTCondor worker node among jobs.
#
# @param config
#   The text of gpuslot.toml; with undef the node's own file stays.
# @param access_point_config
#   What "gpuslot condor-config --for access-point" printed for the pool; only
#   for access points, on which the agent does not run.
# @param package_ensure
#   The package's version, or "installed".
class gpuslot (
  Optional[String[1]] $config              = undef,
  Optional[String[1]] $access_point_config = undef,
  String[1]           $package_ensure      = 'installed',
) {
  package { 'gpuslot':
    ensure => $package_ensure,
  }

  # A file with errors is not put in place: the agent would keep the earlier plan,
  # and a restart of it would fail.
  if $config {
    file { '/etc/gpuslot/gpuslot.toml':
      ensure       => file,
      owner        => 'root',
      group        => 'root',
      mode         => '0644',
      content      => $config,
      validate_cmd => '/usr/bin/gpuslot check-config %',
      require      => Package['gpuslot'],
    }
  }

  if $access_point_config {
    file { '/etc/condor/config.d/60-gpuslot-access-point.config':
      ensure  => file,
      owner   => 'root',
      group   => 'root',
      mode    => '0644',
      content => $access_point_config,
      notify  => Exec['condor_reconfig -schedd'],
    }

    exec { 'condor_reconfig -schedd':
      path        => ['/usr/sbin', '/usr/bin'],
      refreshonly => true,
    }
  } else {
    # A reload, not a restart. Neither ends a job.
    service { 'gpuslotd':
      ensure  => running,
      enable  => true,
      restart => '/usr/bin/systemctl reload gpuslotd.service',
      require => Package['gpuslot'],
    }

    if $config {
      File['/etc/gpuslot/gpuslot.toml'] ~> Service['gpuslotd']
    }
  }
}
